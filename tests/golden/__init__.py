"""What every command says of recorded banks, and every table that it makes, kept as files.

A change of a number, or of a sentence, shows as a diff of `expected/`. `python -m tests.golden`
says what differs, and `python -m tests.golden --update` writes it.
"""

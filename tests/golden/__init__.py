"""Printed texts of every command on recorded banks, and all tables, kept as files.

A changed number or sentence shows as a diff of `expected/`. `python -m tests.golden` prints the
differences, and `python -m tests.golden --update` writes them.
"""

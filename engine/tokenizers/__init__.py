"""Tokenizers: texts, ids, and the text of every token."""

"""Verify, repair, clear and log: what keeps a bank whole."""

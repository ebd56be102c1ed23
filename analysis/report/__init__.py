"""The report of a bank: one page."""

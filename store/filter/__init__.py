"""Debiasing filters, and banks seen through them."""

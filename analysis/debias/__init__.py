"""Debiasing filters: data, loss, training, comparison and search."""

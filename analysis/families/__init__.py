"""Families of metrics, one room each."""

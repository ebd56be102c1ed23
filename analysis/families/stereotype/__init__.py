"""Stereotype accuracy, and exact match of the referent."""

"""Figures: what is drawn, and the two that draw it."""

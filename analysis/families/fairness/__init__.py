"""Fairness: answers by gender, their distances, ranks, tests and onset."""

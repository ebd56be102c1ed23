"""Families of masked models that vLLM runs, one file each; found by lying here."""

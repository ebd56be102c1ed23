"""Ways of quantising, one file each; found by lying here.

Each has METHOD, its name in config.json, and `scheme(fields, path)`, which makes a Scheme or raises
WeightsError.
"""

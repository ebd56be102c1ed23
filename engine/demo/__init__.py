"""The demo: corpora whose truth is known, and models trained on them."""

"""`make real`: the main job on real weights, which are fine-tuned on text whose change is known."""

"""`make real`: the main job on real weights, fine-tuned on text with a known change."""

"""Turn checkpoints and prompts into reduced logits."""

"""Checkpoints whose tensors are worked out of others: LoRA adapters of a base, quantised ones."""

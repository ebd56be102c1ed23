"""Series of checkpoints: on disk, at the hub, known by name."""

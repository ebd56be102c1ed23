"""What `compare` says of two banks or two models."""

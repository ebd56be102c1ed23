"""The comparison of two banks or two models."""

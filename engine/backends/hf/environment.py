"""Variables of a process that runs transformers."""

from logitbank.engine.backends.precision import torch_environment as environment

__all__ = ["environment"]

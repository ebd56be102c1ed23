"""UnQover: its lists, and underspecified questions made of them."""

from logitbank.engine.prompts.known.unqover.prompts import KNOWN

__all__ = ["KNOWN"]

"""WinoBias: its files, and gender questions on its sentences."""

from logitbank.engine.prompts.known.winobias.prompts import (
    KNOWN,
    OPTIONS,
    PERMUTATIONS,
    TEMPLATE,
    seeded_orders,
    winobias,
)

__all__ = ["KNOWN", "OPTIONS", "PERMUTATIONS", "TEMPLATE", "seeded_orders", "winobias"]

"""The NVIDIA GPUs of this machine, as the driver's own tool lists them; CUDA is not started."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from logitbank.engine.plan.share import nvidia_smi, visible_devices

_ASKED = ("index", "uuid", "name", "driver_version", "compute_cap")


class Card(NamedTuple):
    """One GPU; None for what an old driver does not tell."""

    number: str
    """By which CUDA_VISIBLE_DEVICES names it, where that does not by `uuid`."""
    uuid: str
    name: str
    driver: str
    """Version, such as 580.65.06."""
    capability: tuple[int, int] | None


def visible_cards(environment: Mapping[str, str]) -> tuple[Card, ...]:
    """The cards that this process may use; all of the machine's where one is named by its parts."""
    names = visible_devices(environment)
    if not names:
        return ()
    cards = cards_of(nvidia_smi(f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader"))
    chosen = tuple(c for c in cards if any(n == c.number or c.uuid.startswith(n) for n in names))
    return chosen or cards


def cards_of(listing: str) -> tuple[Card, ...]:
    """The cards of what `nvidia-smi --query-gpu` prints, without its header.

    Examples
    --------
    >>> cards_of("0, GPU-1, NVIDIA H100 80GB HBM3, 580.65.06, 9.0")[0].capability
    (9, 0)
    >>> cards_of("No devices were found")
    ()
    """
    cards = []
    for line in listing.splitlines():
        if line.count(",") == len(_ASKED) - 1:
            number, uuid, name, driver, capability = map(str.strip, line.split(","))
            cards.append(Card(number, uuid, name, driver, _numbers(capability)))
    return tuple(cards)


def _numbers(text: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def oldest(cards: Sequence[Card]) -> Card | None:
    """The card of the least compute capability, of those that tell theirs."""
    told = [card for card in cards if card.capability is not None]
    return min(told, key=lambda card: card.capability or (0, 0), default=None)

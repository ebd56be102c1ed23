"""Which models of two sources are the same one."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from logitbank.errors import UsageError

MOST_NAMES = 8
"""Names in a message."""


def match_models(
    a: Sequence[str],
    b: Sequence[str],
    match: Mapping[str, str] | None = None,
    *,
    sources: tuple[str, str],
) -> dict[str, str]:
    """The models that both sources have: their names in B to their names in A.

    With `match`, models of A to models of B, those only. By default, models of the same name are
    one. So are the only two whose names differ in no more than their owner, or that Pythia's
    evaluation files call `pythia-v1.1-…`.

    Raises
    ------
    UsageError
        `match` contains an unknown model, or a model of B twice; `sources` name A and B.

    >>> files = ["m", "EleutherAI/pythia-v1.1-160m"]
    >>> match_models(["pythia-160m", "m"], files, sources=("the bank", "the files"))
    {'m': 'm', 'EleutherAI/pythia-v1.1-160m': 'pythia-160m'}
    """
    if match:
        for names, known, source in zip((match, match.values()), (a, b), sources, strict=True):
            for name in names:
                if name not in known:
                    raise UsageError(
                        f"--match: {source} has no model {name!r}. It has {listed_models(known)}."
                    )
        if len(set(match.values())) < len(match):
            raise UsageError(
                f"--match names one model of {sources[1]} twice. Compare it in two calls."
            )
        return {other: name for name, other in match.items()}
    same = {name: name for name in b if name in a}
    one, other = (_by_plain_name(name for name in names if name not in same) for names in (a, b))
    return same | {other[plain]: one[plain] for plain in other if plain in one}


def _by_plain_name(names: Iterable[str]) -> dict[str, str]:
    """Names without owner, if no other has the same."""
    plain = {name: name.rsplit("/", 1)[-1] for name in names}
    plain = {name: re.sub(r"^pythia-v1\.1-", "pythia-", short) for name, short in plain.items()}
    counts = Counter(plain.values())
    return {short: name for name, short in plain.items() if counts[short] == 1}


def listed_models(names: Collection[str]) -> str:
    """Models by their names, for a message.

    >>> listed_models(["a", "b"]), listed_models([])
    ('models "a", "b"', 'model none')
    """
    texts = [f'"{name}"' for name in names][:MOST_NAMES]
    text = ", ".join(texts) + ", …" * (len(names) > MOST_NAMES)
    return f"model{'s' if len(names) > 1 else ''} {text or 'none'}"

"""Operations that a model may apply to its logits after the LM head, from its config."""

from typing import Any

from logitbank.store.format.heads import Operation

_FACTORS = ("logit_scale", "lm_head_multiplier", "output_multiplier")
"""Cohere's, Falcon-H1's and Muse Glimmer's."""
_DIVISOR = "logits_scaling"
"""Granite's, by which HyperCLOVA X multiplies."""
_CAP = "final_logit_softcapping"


def operations(config: Any) -> list[tuple[Operation, ...]]:
    """Possible operations, the most likely first; the last is none.

    Fields are read by name, although the model's class may not use them. A few trial queries show
    which operations are right.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> operations(SimpleNamespace(get_text_config=lambda: SimpleNamespace(logits_scaling=8.0)))
    [(Operation(name='scale', number=0.125),), (Operation(name='scale', number=8.0),), ()]
    """
    text = config.get_text_config()
    factors = [value for name in _FACTORS if (value := getattr(text, name, None))]
    if divisor := getattr(text, _DIVISOR, None):
        factors += [1 / divisor, divisor]
    scales = [(Operation("scale", float(f)),) for f in factors if f != 1]
    cap = getattr(text, _CAP, None)
    caps = [(Operation("soft_cap", float(cap)),)] if cap else []
    return [scale + cap for scale in (*scales, ()) for cap in (*caps, ())]

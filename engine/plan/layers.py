"""Which layers' states are kept: `--layers` as it is asked, and as the model has them."""

import re
from dataclasses import replace

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.weights.config import ModelConfig
from logitbank.errors import UsageError

NOT_VLLM = (
    "vLLM does not hand over what comes out of layers, which are to be kept here; use --engine"
    " transformers"
)


def check_layers(text: str) -> None:
    """Refuse what names no layers; which of them a model has, its config says.

    Raises
    ------
    UsageError
        It is neither `all` nor a list of whole numbers.
    """
    if text != "all" and not re.fullmatch(r"-?\d{1,6}(\s*,\s*-?\d{1,6})*", text, re.ASCII):
        raise UsageError(
            f"--layers {text!r} names no layers; use all, or a list such as 0,6,12 or -1, the last"
        )


def layers_of(text: str, config: ModelConfig) -> tuple[int, ...]:
    """The layers of a model that `text` names, ascending; empty where it is.

    Layer 0 is what enters the first block, and layer l the output of block l; −1 is the last.

    Raises
    ------
    UsageError
        The model has no such layer, or its config does not say how many it has.

    Examples
    --------
    >>> config = ModelConfig(300, None, ("gpt2", 64, 12, 4, 300))
    >>> layers_of("0,-1,6", config)
    (0, 6, 12)
    """
    if not text:
        return ()
    check_layers(text)
    last = config.layers
    if last is None:
        raise UsageError(
            f"--layers {text}: config.json does not say how many layers the model has"
            f" ({config.model_type}); leave out --layers"
        )
    if text == "all":
        return tuple(range(last + 1))
    numbers = [int(number) for number in text.split(",")]
    for number in numbers:
        if not -last - 1 <= number <= last:
            raise UsageError(
                f"--layers {text}: the model has {last} layers, so {number} is none; use 0, which"
                f" is what enters the first, to {last}, or -1 for the last"
            )
    return tuple(sorted({number % (last + 1) for number in numbers}))


def settings_for_layers(
    settings: EngineSettings, layers: tuple[int, ...], *, any_engine: bool
) -> tuple[EngineSettings, tuple[str, ...]]:
    """The settings with these layers and the engine that has them, and a line where it is new.

    Raises
    ------
    UsageError
        Layers are to be kept, and another engine is not to be taken.
    """
    settings = replace(settings, layers=layers)
    if not layers or settings.engine == "transformers":
        return settings, ()
    if not any_engine:
        raise UsageError(NOT_VLLM)
    note = "transformers is used: vLLM does not hand over what comes out of layers"
    return replace(settings, engine="transformers"), (note,)

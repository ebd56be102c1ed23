"""What cannot run on the GPUs at hand, said in one line before anything is loaded."""

from collections.abc import Mapping
from typing import get_args

from logitbank.engine.backends.precision import AMPERE, OVERRIDE, without_tf32
from logitbank.engine.backends.protocol import ComputeDtype, EngineSettings
from logitbank.engine.gpus.cards import oldest, visible_cards
from logitbank.engine.plan.share import visible_devices
from logitbank.errors import UsageError


def check_precision(settings: EngineSettings, environment: Mapping[str, str]) -> None:
    """Refuse a precision that this machine's processors do not have.

    Raises
    ------
    UsageError
        It is unknown; or TF32 is asked for on a CPU, on a GPU before Ampere, of kernels that would
        have it in the output head too, or against NVIDIA's own variable.
    """
    named = settings.compute_dtype
    if named not in get_args(ComputeDtype):
        raise UsageError(f"compute dtype {named!r}: use {', '.join(get_args(ComputeDtype))}")
    if named != "tf32":
        return
    if not visible_devices(environment):
        raise UsageError(without_tf32(None))
    card = oldest(visible_cards(environment))
    if card is not None and card.capability is not None and card.capability < AMPERE:
        raise UsageError(without_tf32(card.capability, card.name))
    if OVERRIDE in environment:
        raise UsageError(
            f"{OVERRIDE}={environment[OVERRIDE]} decides over --compute-dtype tf32: unset it, or"
            " use --compute-dtype float32"
        )
    if settings.deterministic and settings.engine == "vllm":
        raise UsageError(
            "vLLM's batch-invariant kernels would multiply the output head in TF32, too; use"
            " --engine transformers with --deterministic and tf32, or --compute-dtype float32"
        )

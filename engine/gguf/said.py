"""What a GGUF file says of its model, against the config that transformers makes of it.

Keys that transformers does not read would change every number in silence, so one that is not known
to agree with the config is refused by its name.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from logitbank.errors import WeightsError

ROPE_FACTORS = "rope_freqs.weight"
"""Tensor of what Llama 3 divides its rotary frequencies by, one factor each."""
_ADVICE = "give the model's safetensors"
_HARMLESS = {"context_length", "tensor_data_layout", "block_count", "vocab_size"}
"""Keys that change no number where they are not read; a wrong count of blocks or words does not
fit the tensors."""


def check_said(metadata: Mapping[str, Any], config: Any) -> None:
    """Refuse a file that says of its model what its config does not.

    Raises
    ------
    WeightsError
        It does, or transformers does not read what it says.
    """
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
    from transformers.integrations.gguf import GGUF_CONFIG_ARCHS

    architecture = metadata["general.architecture"]
    if architecture in GGUF_CONFIG_ARCHS:
        return  # its config is made key by key
    spelt = architecture.replace("qwen2moe", "qwen2_moe").replace("qwen3moe", "qwen3_moe")
    read = GGUF_CONFIG_MAPPING.get(spelt.replace("-", "_"), {})
    for key, value in metadata.items():
        name = key.removeprefix(f"{architecture}.")
        if name == key or name in _HARMLESS or value in (0, "none"):  # it has no such thing
            continue
        if read.get(name) is not None and name != "rope.freq_base":  # not all have it for whole
            continue
        expected = _OF_CONFIG[name](config) if name in _OF_CONFIG else None
        if not _same(value, expected):
            of_config = "none" if expected is None else str(expected)[:60]
            raise WeightsError(
                f"says {key} = {str(value)[:60]}, and the config that transformers makes of it"
                f" {of_config}, so that its numbers would be others; {_ADVICE}"
            )


def scaled_rope(factors: Sequence[float], config: Any) -> dict[str, Any]:
    """Llama 3's rotary parameters, by the factors that they come to.

    The file holds no parameters, only what follows of them; of all Llama 3 but the factor is one.

    Raises
    ------
    WeightsError
        These are the factors of no Llama 3.
    """
    theta, dims = _theta(config), 2 * len(factors)
    scaling = {"factor": max(factors), "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    original = 8192
    for index, found in enumerate(factors):
        turns = original / (2 * math.pi * theta ** (2 * index / dims))
        share = min(1.0, max(0.0, (turns - 1.0) / 3.0))
        if not math.isclose(found, 1 / ((1 - share) / max(factors) + share), rel_tol=1e-4):
            raise WeightsError(
                f"divides rotary frequencies ({ROPE_FACTORS}) otherwise than Llama 3 does, which"
                f" transformers does not read; {_ADVICE}"
            )
    rope = {"rope_type": "llama3", "rope_theta": theta, **scaling}
    return {**rope, "original_max_position_embeddings": original}


def _same(value: Any, expected: Any) -> bool:
    if isinstance(value, float) and isinstance(expected, int | float):
        return math.isclose(value, expected, rel_tol=1e-5)
    return expected is not None and bool(value == expected)


def _theta(config: Any) -> Any:
    rope = getattr(config, "rope_parameters", None) or {}
    return rope.get("full_attention", rope).get("rope_theta")


def _head(config: Any) -> int:
    own = getattr(config, "head_dim", None)
    return int(own or config.hidden_size // config.num_attention_heads)


def _rotated(config: Any) -> int:
    rope = getattr(config, "rope_parameters", None) or {}
    share = rope.get("full_attention", rope).get("partial_rotary_factor")
    return int(_head(config) * (share or getattr(config, "partial_rotary_factor", None) or 1.0))


def _field(*names: str) -> Callable[[Any], Any]:
    """The first of these fields that a config has."""
    return lambda config: next(
        (v for n in names if (v := getattr(config, n, None)) is not None), None
    )


_OF_CONFIG: dict[str, Callable[[Any], Any]] = {
    "attention.causal": lambda _: True,
    "attention.key_length": _head,
    "attention.layer_norm_epsilon": _field("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"),
    "attention.layer_norm_rms_epsilon": _field("rms_norm_eps", "norm_eps", "layer_norm_epsilon"),
    "attention.sliding_window": _field("sliding_window"),
    "attention.value_length": _head,
    "attn_logit_softcapping": _field("attn_logit_softcapping"),
    "expert_feed_forward_length": _field("moe_intermediate_size"),
    "expert_shared_feed_forward_length": _field("shared_expert_intermediate_size"),
    "feed_forward_length": _field("intermediate_size", "n_inner"),
    "final_logit_softcapping": _field("final_logit_softcapping"),
    "rope.dimension_count": _rotated,
    "rope.freq_base": _theta,
    "rope.scaling.original_context_length": _field("max_position_embeddings"),
    "use_parallel_residual": _field("use_parallel_residual"),
}
"""Of keys that some architectures' configs are not made of, what a config says of them."""

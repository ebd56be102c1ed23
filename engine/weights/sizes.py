"""Whether the sizes that a config claims can be those of the weights beside it.

Engines ask for memory by the config alone, so a stranger's, or one of another checkpoint, is held
against the headers of the weights first.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logitbank.engine.weights.weights import tensor_shapes
from logitbank.errors import SuiteError, WeightsError

MOST_LAYERS = 10_000
LARGEST_SIZE = 2**26
"""Length of the longest axis: 67 million outputs would be a hundred times the largest
vocabulary."""
_LAYERS = (
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    *("encoder_layers", "decoder_layers", "num_decoder_layers"),
)
_SIZES = (
    *("vocab_size", "hidden_size", "n_embd", "d_model", "embedding_size", "word_embed_proj_dim"),
    *("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff", "mlp_hidden_size"),
    *("moe_intermediate_size", "head_dim", "type_vocab_size"),
    *("num_attention_heads", "n_head", "n_heads", "num_key_value_heads"),
    *("num_local_experts", "num_experts", "n_routed_experts"),
)
LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx")


def check_claims(config: Any, path: Path) -> None:
    """Refuse sizes that no model has, before any weights are fetched.

    Raises
    ------
    SuiteError
        Names the file, the key and its value.
    """
    for names, most in ((_LAYERS, MOST_LAYERS), ((*_SIZES, *LENGTHS), LARGEST_SIZE)):
        for name, value in numbers(config, names):
            if not value <= most:  # NaN is no size either
                raise SuiteError(
                    f"{path} claims {name} {str(value)[:40]}, and no model has more than {most:,};"
                    " the config is damaged or not to be trusted: fetch the checkpoint again"
                )


def check_sizes(folder: Path) -> None:
    """Refuse a config that claims more than the weights hold; reads headers, and no tensor.

    A layer has a tensor of its own at least, and a size is that of an axis of some tensor.

    Raises
    ------
    WeightsError
        The config claims more layers than there are tensors, or more than their longest axis; or
        as `weight_files`.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return  # whoever needs it says so
    shapes = tensor_shapes(folder)
    longest = max((size for shape in shapes.values() for size in shape), default=0)
    claims = [(n, v, len(shapes), "tensors") for n, v in numbers(config, _LAYERS)]
    claims += [(n, v, longest, "as longest axis") for n, v in numbers(config, _SIZES)]
    for name, value, most, what in claims:
        if value > most:
            raise WeightsError(
                f"{path} claims {name} {str(value)[:40]}, and the weights beside it have {most:,}"
                f" {what}; they are not of one checkpoint: fetch it again, or correct the config"
            )


def numbers(config: Any, names: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """Numbers under these names, in parts of a config and lists too."""
    parts = [config]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            parts += part.values()
            for name in names:
                value = part.get(name)
                for number in value if isinstance(value, list) else [value]:
                    if isinstance(number, int | float) and not isinstance(number, bool):
                        yield name, number

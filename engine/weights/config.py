"""Read a checkpoint's config.json, without loading any model code."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from logitbank.engine.backends.protocol import Task
from logitbank.engine.weights.weights import check_not_pointer
from logitbank.errors import SuiteError
from logitbank.store.files.documents import require_depth
from logitbank.store.format.limits import shown

_SHAPE_KEYS = (
    ("model_type",),
    ("hidden_size", "n_embd", "d_model"),
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    ("num_attention_heads", "n_head", "n_heads"),
    ("vocab_size",),
)
"""Each under the names that architectures give it."""
_LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx")
_WINDOWS = (
    *("sliding_window", "sliding_window_size", "local_attention", "attention_window"),
    *("window_size", "attention_chunk_size"),
)
_ORIGINAL = "original_max_position_embeddings"
_MAX_TYPE = 100
"""Letters of the longest model type."""
_OFFSET_POSITIONS = frozenset(
    {
        *("roberta", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "camembert"),
        *("xmod", "longformer", "mpnet", "data2vec-text", "luke", "mluke", "ibert", "esm"),
    }
)
"""Model types whose positions count from the padding's id on, so that as many of the embeddings are
never used."""


class Attention(NamedTuple):
    """Sizes of a model's attention."""

    layers: int
    key_value_heads: int
    head_size: int
    has_window: bool = False
    """Whether some layer sees only the last tokens."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The part of a config that planning needs."""

    vocab: int
    """Outputs of the head, padding included."""
    max_length: int | None
    """Longest sequence in tokens, or None if the config has no limit."""
    shape: tuple[object, ...]
    """Model type and sizes: equal within a suite."""
    model_type: str = ""
    architectures: tuple[str, ...] = ()
    """Classes that its authors name."""
    languages: tuple[str, ...] = ()
    """Language adapters, if the model has some."""
    rope_switch: int | None = None
    """Length above which a longrope model uses other factors."""
    legacy_head: bool = False
    """Whether it is a DeBERTa with the head that transformers made, not its authors."""
    switches: tuple[str, ...] = ()
    """Fields that are true."""
    attention: Attention | None = None
    """None if the config does not have its sizes."""

    @property
    def task(self) -> Task | None:
        """The task of its head, or None if that is unknown."""
        if any(name.endswith(("ForMaskedLM", "ForPreTraining")) for name in self.architectures):
            return "masked"
        if any(
            name.endswith(("ForCausalLM", "LMHeadModel")) and not name.endswith("WithLMHeadModel")
            for name in self.architectures  # XLMWithLMHeadModel is either
        ):
            return "causal"
        return None

    def difference(self, first: "ModelConfig") -> str:
        """Why this config does not belong to the suite of `first`; empty if it does."""
        names = (*(keys[0] for keys in _SHAPE_KEYS), "languages")
        values = (*self.shape, sorted(self.languages))
        first_values = (*first.shape, sorted(first.languages))
        return ", ".join(
            f"{name} is {value}, the first checkpoint's {first_value}"
            for name, value, first_value in zip(names, values, first_values, strict=True)
            if value != first_value
        )

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Parse `folder/config.json`.

        Raises
        ------
        SuiteError
            The file is absent, is not a JSON object, contains no vocabulary size, or is of a
            multimodal or an encoder–decoder model.
        WeightsError
            The file is a Git LFS pointer.
        """
        path = folder / "config.json"
        check_not_pointer(path)
        try:
            text = path.read_text()
            config = json.loads(text)
            require_depth(config, text.encode())
        except FileNotFoundError:
            raise SuiteError(
                f"{folder} has no config.json, so it is not a checkpoint in the Hugging Face layout"
            ) from None
        except (ValueError, RecursionError) as error:
            raise SuiteError(f"{path} is not JSON: {error}") from None
        if isinstance(config, dict) and isinstance(config.get("text_config"), dict):
            named = ", ".join(_names(config.get("architectures"))) or config.get("model_type")
            raise SuiteError(
                f"{path} is of a multimodal model ({named}), and these are not supported. Use a"
                " checkpoint of its language model alone, whose config has no text_config"
            )
        if isinstance(config, dict) and config.get("is_encoder_decoder") is True:
            raise encoder_decoder(config)
        vocab = config.get("vocab_size") if isinstance(config, dict) else None
        if not isinstance(vocab, int) or vocab < 1:
            raise SuiteError(f"{path} has vocab_size {vocab!r}; a positive number is needed")
        if not isinstance(kind := config.get("model_type", ""), str) or len(kind) > _MAX_TYPE:
            raise SuiteError(
                f"{path} has model_type {shown(kind)}; a text of at most {_MAX_TYPE} letters is"
                " needed"
            )
        lengths = [config[k] for k in _LENGTHS if isinstance(config.get(k), int)]
        model_type = str(config.get("model_type", ""))
        if model_type in _OFFSET_POSITIONS and isinstance(
            pad := config.get("pad_token_id", 1), int
        ):
            lengths = [length - pad - 1 for length in lengths]
        shape = tuple(next((config[k] for k in keys if k in config), None) for keys in _SHAPE_KEYS)
        return cls(
            vocab,
            min(lengths) if lengths else None,
            shape,
            model_type,
            _names(config.get("architectures")),
            _names(config.get("languages")),
            _rope_switch(config),
            model_type in ("deberta", "deberta-v2") and config.get("legacy", True) is not False,
            tuple(name for name, value in config.items() if value is True),
            _attention(config, shape),
        )


def encoder_decoder(config: Mapping[str, object]) -> SuiteError:
    """The error for a model whose decoder also reads an encoder."""
    name = ", ".join(_names(config.get("architectures"))) or config.get("model_type")
    return SuiteError(
        f"{name} is not supported: it is an encoder–decoder model (is_encoder_decoder), and its"
        " logits depend on a second text. Use a causal or a masked model"
    )


def length_limits(config: Mapping[str, object]) -> tuple[int, ...]:
    """Lengths at which a model, or an engine's version of it, may change what it computes.

    Examples
    --------
    >>> scaling = {"rope_type": "longrope", "original_max_position_embeddings": 32}
    >>> length_limits({"sliding_window": 16, "rope_parameters": scaling})
    (16, 32)
    >>> length_limits({"attention_window": [512, 256]})
    (256, 512)
    """
    return tuple(sorted({*_lengths(config, (*_WINDOWS, _ORIGINAL))}))


def _attention(config: dict[str, object], shape: tuple[object, ...]) -> Attention | None:
    _, width, layers, heads, _ = shape
    if not (isinstance(width, int) and isinstance(layers, int) and isinstance(heads, int)):
        return None
    if min(width, layers, heads) < 1:
        return None
    size, shared = config.get("head_dim"), config.get("num_key_value_heads")
    return Attention(
        layers,
        shared if isinstance(shared, int) and shared > 0 else heads,
        size if isinstance(size, int) and size > 0 else width // heads,
        any(_lengths(config, _WINDOWS)),
    )


def _rope_switch(config: dict[str, object]) -> int | None:
    scaling = config.get("rope_parameters") or config.get("rope_scaling")
    kinds = [scaling.get("rope_type"), scaling.get("type")] if isinstance(scaling, dict) else []
    if not {"longrope", "su"}.intersection(kind for kind in kinds if isinstance(kind, str)):
        return None
    return next(_lengths(config, (_ORIGINAL,)), None)


def _names(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _lengths(config: Any, names: tuple[str, ...]) -> Iterator[int]:
    """Positive numbers under these names, also in lists and in parts of a config."""
    parts = [config]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            parts += part.values()
            for name in names:
                value = part.get(name)
                numbers = value if isinstance(value, list) else [value]
                yield from (number for number in numbers if type(number) is int and number > 0)

"""The fields of a checkpoint's config that identify its model, and whether two models are the same.

When weights are reloaded, the model stays as it was built. So one engine runs checkpoints only if
their config fields are equal. All fields are compared except those that are known to change no
logit: an unknown field makes another model.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from logitbank.errors import WeightsError

ConfigFields = Mapping[str, object]
"""Fields of a config that identify the model, and a digest of the code that ships with it."""

_OF_THE_FILE = {"_name_or_path", "transformers_version"}
_SET_BY_ENGINES = {"dtype", "torch_dtype", "use_cache"}
_OF_TRAINING = {
    *("gradient_checkpointing", "initializer_range"),
    *("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "classifier_dropout"),
    *("dropout", "embd_pdrop", "hidden_dropout", "hidden_dropout_prob", "resid_pdrop"),
}
_OF_GENERATION = {"bos_token_id"}
"""Not `pad_token_id`, from which RoBERTa counts its positions, and not `eos_token_id`, at which
n-gram embeddings begin anew (LongCat, Qwen4). No model of vLLM and transformers reads the first
token's id where texts are scored: Moondream does beside pictures, others when they generate."""
_LEFT_OUT = _OF_THE_FILE | _SET_BY_ENGINES | _OF_TRAINING | _OF_GENERATION
_CODE = "code"


def config_fields(folder: Path) -> ConfigFields:
    """The fields of a checkpoint's config.json that identify its model."""
    config = json.loads((folder / "config.json").read_bytes())
    fields = {name: value for name, value in config.items() if name not in _LEFT_OUT}
    if isinstance(names := fields.get("architectures"), list):
        fields["architectures"] = sorted(map(str, names))
    if "auto_map" in fields:
        code = hashlib.sha256()
        for path in sorted(folder.glob("*.py")):
            code.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
        fields[_CODE] = code.hexdigest()
    return fields


def differing_fields(one: ConfigFields, other: ConfigFields) -> tuple[str, ...]:
    """Names of the fields in which two configs differ, as JSON: NaN is NaN, and 1 is not 1.0.

    Examples
    --------
    >>> differing_fields({"rope_theta": 1e4, "act": "gelu"}, {"act": "gelu", "new": None})
    ('new', 'rope_theta')
    """
    first, second = ({n: _text(value) for n, value in each.items()} for each in (one, other))
    return tuple(name for name in sorted({*one, *other}) if first.get(name) != second.get(name))


def config_digest(fields: ConfigFields) -> str:
    """16 hex digits; different for different models of the same weights."""
    return hashlib.sha256(_text(fields).encode()).hexdigest()[:16]


def _text(value: object) -> str:
    """JSON, with Infinity and NaN, which configs hold (`time_step_limit` of Mamba 2)."""
    return json.dumps(value, sort_keys=True)


def check_same_model(
    opened: ConfigFields | None, config: ConfigFields, *, checkpoint: str
) -> ConfigFields:
    """The config of a checkpoint, if its weights belong into the engine's model.

    `opened` is the config of that model, None if it is not built yet.

    Raises
    ------
    WeightsError
        Its config differs from the one that the engine was opened with.
    """
    if names := differing_fields(config if opened is None else opened, config):
        raise WeightsError(
            f"{checkpoint}: config.json differs from that of the engine's model in"
            f" {', '.join(names)}; open another engine for it"
        )
    return config

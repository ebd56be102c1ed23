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

_IGNORED = {
    *("_name_or_path", "transformers_version"),
    *("dtype", "torch_dtype", "use_cache"),  # set by the engines
    # Training:
    *("gradient_checkpointing", "initializer_range"),
    *("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "classifier_dropout"),
    *("dropout", "embd_pdrop", "hidden_dropout", "hidden_dropout_prob", "resid_pdrop"),
    # Generation. Not `pad_token_id`, from which RoBERTa counts its positions, and not
    # `eos_token_id`, at which n-gram embeddings start again (LongCat, Qwen4).
    "bos_token_id",
}


def config_fields(folder: Path) -> ConfigFields:
    """The fields of a checkpoint's config.json that identify its model."""
    config = json.loads((folder / "config.json").read_bytes())
    fields = {name: value for name, value in config.items() if name not in _IGNORED}
    if isinstance(names := fields.get("architectures"), list):
        fields["architectures"] = sorted(map(str, names))
    if "auto_map" in fields:
        code = hashlib.sha256()
        for path in sorted(folder.glob("*.py")):
            code.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
        fields["code"] = code.hexdigest()
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


def check_same_model(opened: ConfigFields, config: ConfigFields, *, checkpoint: str) -> None:
    """Refuse a checkpoint whose weights do not belong into the engine's model.

    Raises
    ------
    WeightsError
        Its config differs from the one that the engine was opened with.
    """
    if names := differing_fields(opened, config):
        raise WeightsError(
            f"{checkpoint}: config.json differs from that of the engine's model in"
            f" {', '.join(names)}; open another engine for it"
        )

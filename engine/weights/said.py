"""What a checkpoint's files say of its model beside the weights, and whether two say the same.

A swap of weights leaves the model as it was built. So an engine is used again only for checkpoints
that say the same: of what `config.json` says, only what is known to touch no logit is left out, and
whatever else differs makes another model, fields that nobody here has heard of too.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from logitbank.errors import WeightsError

ModelSaid = Mapping[str, object]
"""Fields of a config that say which model it is, and a digest of the code that comes with it."""

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


def said_of_model(body: Path) -> ModelSaid:
    """What the folder of a checkpoint, or of an adapter's base, says of the model."""
    config = json.loads((body / "config.json").read_bytes())
    said = {name: value for name, value in config.items() if name not in _LEFT_OUT}
    if isinstance(names := said.get("architectures"), list):
        said["architectures"] = sorted(map(str, names))
    if "auto_map" in said:
        code = hashlib.sha256()
        for path in sorted(body.glob("*.py")):
            code.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
        said[_CODE] = code.hexdigest()
    return said


def differing(one: ModelSaid, other: ModelSaid) -> tuple[str, ...]:
    """Names of the fields in which two differ, as JSON: NaN is NaN, and 1 is not 1.0.

    Examples
    --------
    >>> differing({"rope_theta": 1e4, "hidden_act": "gelu"}, {"hidden_act": "gelu", "new": None})
    ('new', 'rope_theta')
    """
    texts = [{name: _text(value) for name, value in said.items()} for said in (one, other)]
    first, second = texts
    return tuple(name for name in sorted({*one, *other}) if first.get(name) != second.get(name))


def said_digest(said: ModelSaid) -> str:
    """16 hex digits by which provenance tells other models of the same weights apart."""
    return hashlib.sha256(_text(said).encode()).hexdigest()[:16]


def _text(value: object) -> str:
    """JSON, with Infinity and NaN, which configs hold (`time_step_limit` of Mamba 2)."""
    return json.dumps(value, sort_keys=True)


def check_same_model(opened: ModelSaid | None, said: ModelSaid, *, checkpoint: str) -> ModelSaid:
    """What a checkpoint says; its weights are not put into another model than its own.

    `opened` is what the engine's model is by, None where it has none yet.

    Raises
    ------
    WeightsError
        Its config differs from the one that the engine was opened with.
    """
    if names := differing(said if opened is None else opened, said):
        raise WeightsError(
            f"{checkpoint}: config.json differs from that of the engine's model in"
            f" {', '.join(names)}; open another engine for it"
        )
    return said

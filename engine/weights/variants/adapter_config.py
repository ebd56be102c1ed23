"""What `adapter_config.json`, in PEFT's format, says of a LoRA adapter; it reads no tensor.

What would change the numbers and is not known here is refused by the name of its field.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from logitbank.errors import SuiteError

ADAPTER_CONFIG = "adapter_config.json"
_FIELDS = frozenset(
    {
        *("peft_type", "r", "lora_alpha", "use_rslora", "fan_in_fan_out", "rank_pattern"),
        *("alpha_pattern", "modules_to_save", "base_model_name_or_path", "init_lora_weights"),
    }
)
_OF_TRAINING = frozenset(
    {
        *("auto_mapping", "peft_version", "revision", "task_type", "inference_mode"),
        *("lora_dropout", "eva_config", "megatron_core", "qalora_group_size"),
        # Which modules have an adapter is told by its tensors.
        *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    }
)
"""Fields that say nothing of what a finished adapter computes."""
_OFF: tuple[Any, ...] = (None, False, "none", {}, [])
_BEGINNINGS = (True, False, "gaussian", "eva", "orthogonal")
"""Values of `init_lora_weights` that leave the base as it is; PiSSA, OLoRA and others do not."""
_PATTERN = re.compile(r"\^?[\w.]{1,200}", re.ASCII)
_MOST_RANK = 1 << 16
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """The part of a LoRA adapter's config that its weights are worked out by."""

    base: str
    """Name of the base as the training knew it: a folder, or a repository on the hub."""
    rank: int
    alpha: float
    rank_stabilised: bool
    transposed: bool
    """The base holds its weights as (in, out), as GPT-2 does."""
    ranks: Mapping[str, int]
    """Ranks of modules that have another; a key is the end of a module's name."""
    alphas: Mapping[str, float]
    saved: tuple[str, ...]
    """Ends of the names of modules that were trained whole."""

    def rank_of(self, module: str) -> int:
        """The rank of one module's adapter."""
        return _of_pattern(self.ranks, module, self.rank)

    def scale_of(self, module: str) -> float:
        """The factor of B·A: alpha / r, or alpha / √r where it is rank-stabilised."""
        rank = self.rank_of(module)
        alpha = _of_pattern(self.alphas, module, self.alpha)
        return alpha / (math.sqrt(rank) if self.rank_stabilised else rank)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Parse `folder/adapter_config.json`.

        Raises
        ------
        SuiteError
            It is absent or no JSON object, is of another kind of adapter than LoRA, or has a field
            that changes what is computed in a way that is not supported.
        """
        path = folder / ADAPTER_CONFIG
        try:
            fields = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise SuiteError(f"{path} cannot be read as JSON: {error}") from None
        if not isinstance(fields, dict):
            raise SuiteError(f"{path} is no JSON object; give a folder that PEFT saved")
        if (kind := fields.get("peft_type")) != "LORA":
            raise SuiteError(
                f"{path} has peft_type {kind!r}; only LORA is supported: merge the adapter into"
                " its base with PEFT, save that, and give its folder"
            )
        _refuse_unknown(fields, path)
        return cls(
            str(fields.get("base_model_name_or_path") or ""),
            _rank(fields.get("r"), "r", path),
            _number(fields.get("lora_alpha"), "lora_alpha", path),
            _flag(fields, "use_rslora", path),
            _flag(fields, "fan_in_fan_out", path),
            {k: _rank(v, f"rank_pattern[{k!r}]", path) for k, v in _patterns(fields, path, "rank")},
            {
                k: _number(v, f"alpha_pattern[{k!r}]", path)
                for k, v in _patterns(fields, path, "alpha")
            },
            _saved(fields.get("modules_to_save"), path),
        )


def _refuse_unknown(fields: Mapping[str, Any], path: Path) -> None:
    for name, value in fields.items():
        if name == "init_lora_weights":
            changes = not any(value is each or value == each for each in _BEGINNINGS)
        else:
            changes = name not in _FIELDS | _OF_TRAINING and value not in _OFF
        if changes:
            raise SuiteError(
                f"{path} has {name} {str(value)[:60]!r}, which is not supported: merge the adapter"
                " into its base with PEFT, save that, and give its folder"
            )


def _of_pattern(patterns: Mapping[str, Value], module: str, default: Value) -> Value:
    """The value of the first pattern that is the end of a module's name, as PEFT looks them up."""
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return default


def _patterns(fields: Mapping[str, Any], path: Path, kind: str) -> list[tuple[str, Any]]:
    patterns = fields.get(f"{kind}_pattern") or {}
    if not isinstance(patterns, dict):
        raise SuiteError(f"{path} has {kind}_pattern {str(patterns)[:60]!r}; an object is needed")
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise SuiteError(
                f"{path} has {kind}_pattern {pattern[:60]!r}; only plain names of modules are"
                " supported, such as layers.0.self_attn.q_proj"
            )
    return [*patterns.items()]


def _rank(value: Any, name: str, path: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _MOST_RANK:
        raise SuiteError(f"{path} has {name} {str(value)[:60]!r}; a positive number is needed")
    return value


def _number(value: Any, name: str, path: Path) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not abs(value) < 1e9:
        raise SuiteError(f"{path} has {name} {str(value)[:60]!r}; a number is needed")
    return float(value)


def _flag(fields: Mapping[str, Any], name: str, path: Path) -> bool:
    value = fields.get(name, False)
    if value not in (True, False, None):
        raise SuiteError(f"{path} has {name} {str(value)[:60]!r}; true or false is needed")
    return bool(value)


def _saved(value: Any, path: Path) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise SuiteError(f"{path} has modules_to_save {str(value)[:60]!r}; names are needed")
    return tuple(value)

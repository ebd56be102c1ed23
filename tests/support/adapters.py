"""LoRA adapters in PEFT's format, written by hand, so that no test needs PEFT to have one."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 2,
    "lora_alpha": 6,
    "use_rslora": False,
    "fan_in_fan_out": False,
    "bias": "none",
    "use_dora": False,
    "init_lora_weights": True,
    "modules_to_save": None,
    "rank_pattern": {},
    "alpha_pattern": {},
    "lora_dropout": 0.1,
}


def write_adapter(folder: Path, tensors: Mapping[str, Any], *, base: Path, **fields: Any) -> Path:
    """Tensors by what comes after `base_model.model.`, and a config with these fields."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIG | {"base_model_name_or_path": str(base)} | fields
    (folder / "adapter_config.json").write_text(json.dumps(config))
    named = {f"base_model.model.{name}": t.contiguous() for name, t in tensors.items()}
    save_file(named, folder / "adapter_model.safetensors")
    return folder


def random_adapter(
    folder: Path, base: Path, modules: Mapping[str, tuple[int, int]], *, seed: int, **fields: Any
) -> Path:
    """Random A and B for modules with these numbers of outputs and inputs."""
    import torch

    drawn = torch.Generator().manual_seed(seed)
    rank = fields.get("r", CONFIG["r"])
    tensors = {}
    for module, (outputs, inputs) in modules.items():
        tensors[f"{module}.lora_A.weight"] = torch.randn(rank, inputs, generator=drawn) * 0.2
        tensors[f"{module}.lora_B.weight"] = torch.randn(outputs, rank, generator=drawn) * 0.2
    fields = {"target_modules": [*modules]} | fields
    return write_adapter(folder, tensors, base=base, **fields)

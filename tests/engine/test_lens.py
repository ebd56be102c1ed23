"""A lens on models that differ in what lies between their last block and their head."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from logitbank.engine.backends.hf.backend import TransformersBackend
from logitbank.engine.backends.protocol import EngineSettings, Task
from logitbank.engine.plan.layers import settings_for_layers
from logitbank.errors import HeadError, UsageError
from logitbank.store.format.schema import Query

SIZES = {"vocab_size": 300, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
WIDE = {**SIZES, "intermediate_size": 96, "max_position_embeddings": 64}
CASES: dict[str, tuple[Task, Callable[[], Any]]] = {
    "a projection and no norm": (
        "causal",
        lambda: transformers.OPTConfig(
            **SIZES, ffn_dim=96, word_embed_proj_dim=32, do_layer_norm_before=False
        ),
    ),
    "a state-space model": ("causal", lambda: transformers.MambaConfig(**SIZES)),
    "sequences without padding": (
        "masked",
        lambda: transformers.ModernBertConfig(**WIDE, pad_token_id=0),
    ),
    "embeddings of another width": (
        "masked",
        lambda: transformers.ElectraConfig(**WIDE, embedding_size=32),
    ),
}


def opened(folder: Path, task: Task, config: Any, **settings: Any) -> TransformersBackend:
    kind: Any = transformers.AutoModelForCausalLM
    if task == "masked":
        kind = transformers.AutoModelForMaskedLM
    torch.manual_seed(0)
    model = kind.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    asked = EngineSettings("transformers", task=task, hidden=True, max_length=8, **settings)
    return TransformersBackend(folder, asked)


@pytest.mark.parametrize("case", CASES)
def test_the_last_layer_is_what_the_head_multiplies(tmp_path: Path, case: str) -> None:
    task, config = CASES[case]
    backend = opened(tmp_path, task, config(), layers=(0, 2, 3))
    backend.load(tmp_path, checkpoint="x")
    head: Any = "mask" if task == "masked" else "next_token"
    queries = [Query((5 + n, 7, 9, 11)[: 3 + n % 2], 2, head=head) for n in range(5)]
    seen: list[int] = []

    def take(indices: Sequence[int], _: Any, hidden: Any = None, layers: Any = None, /) -> None:
        assert layers.shape == (len(indices), 3, hidden.shape[1])
        torch.testing.assert_close(layers[:, 2], hidden, rtol=0, atol=1e-4)
        assert (layers[:, 1] - hidden).abs().max() > 0.01
        seen.extend(indices)

    backend.score(queries, take)
    assert sorted(seen) == [*range(5)]


def test_layers_that_share_a_block_are_refused_by_name(tmp_path: Path) -> None:
    config = transformers.AlbertConfig(**WIDE, embedding_size=32)
    backend = opened(tmp_path, "masked", config, layers=(0,))
    with pytest.raises(HeadError, match=r"x: layers of AlbertForMaskedLM cannot be seen .* mask"):
        backend.load(tmp_path, checkpoint="x")


def test_lower_dtypes_are_proved_to_their_rounding(tmp_path: Path) -> None:
    config = transformers.GPTNeoXConfig(**WIDE)
    backend = opened(tmp_path, "causal", config, layers=(3,), compute_dtype="bfloat16")
    backend.load(tmp_path, checkpoint="x")
    found: list[torch.Tensor] = []
    backend.score([Query((5, 7, 9), 2)], lambda *args: found.extend(args[2:]))
    hidden, layers = found
    assert hidden.dtype == layers.dtype == torch.float32
    torch.testing.assert_close(layers[:, 0], hidden, rtol=0, atol=0.05)


def test_a_bank_with_layers_is_not_finished_by_an_engine_without() -> None:
    settings = EngineSettings("vllm")
    with pytest.raises(UsageError, match=r"to be kept here; use --engine transformers"):
        settings_for_layers(settings, (0,), any_engine=False)
    assert settings_for_layers(settings, (), any_engine=False) == (settings, ())

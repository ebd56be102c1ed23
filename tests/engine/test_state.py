"""Models that a forward pass changes: each prompt's logits are those of a model just read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, LlamaForCausalLM

from logitbank.engine.backends.hf.backend import TransformersBackend
from logitbank.engine.backends.plain_logits import evaluate
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.errors import EngineError
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import Query
from tests.support.checkpoints import VOCAB
from tests.support.packed_driver import scored

SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 96,
}
SHORT = {**SIZES, "max_position_embeddings": 12}
LONG_ROPE = {
    "rope_type": "longrope",
    "original_max_position_embeddings": 12,
    "factor": 4.0,
    "short_factor": [1.0] * 8,
    "long_factor": [3.0] * 8,
}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
OF_LAYERS = {
    "full_attention": DYNAMIC,
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
IDS = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id"), 0)
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "weights divided": (
        "causal",
        "rwkv",
        {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 4, "rescale_every": 2},
    ),
    "attention exchanged": ("masked", "big_bird", {**SIZES, "block_size": 4}),
    "frequencies of the longest": ("causal", "llama", {**SHORT, "rope_parameters": DYNAMIC}),
    "frequencies by layer": (
        "masked",
        "modernbert",
        {**SHORT, **IDS, "sep_token_id": 0, "rope_parameters": OF_LAYERS},
    ),
    "frequencies above a length": ("causal", "llama", {**SIZES, "rope_parameters": LONG_ROPE}),
}
LENGTHS = (40, 3, 14, 60, 13, 7, 30)


def made(folder: Path, name: str, *, seed: int) -> tuple[Path, EngineSettings]:
    task, kind, config = MODELS[name]
    torch.manual_seed(seed)
    classes: Any = AutoModelForCausalLM if task == "causal" else AutoModelForMaskedLM
    model = classes.from_config(AutoConfig.for_model(kind, **config))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.4)
    model.save_pretrained(folder)
    return folder, EngineSettings("transformers", task=task, max_length=64)  # type: ignore[arg-type]


def queries(task: str) -> list[Query]:
    """Sequences of many lengths, some of which begin others."""
    draw = np.random.default_rng(0)
    drawn = [tuple(map(int, draw.integers(5, VOCAB, size))) for size in LENGTHS]
    if task == "masked":
        return [Query(ids, len(ids) // 2, head="mask") for ids in drawn]
    drawn += [drawn[0][:9], drawn[3][:20]]
    query_set, _ = QuerySet.from_contexts("t", [Query(ids, len(ids) - 1) for ids in drawn])
    return [*query_set.queries]


def fresh(folder: Path, asked: list[Query], task: str) -> np.ndarray:
    """Logits by plain transformers, which reads the model for each query."""
    classes: Any = AutoModelForCausalLM if task == "causal" else AutoModelForMaskedLM
    rows = []
    for query in asked:
        ids = query.ids[: query.position + 1] if task == "causal" else query.ids
        with torch.inference_mode():
            logits = classes.from_pretrained(folder).eval()(torch.tensor([ids])).logits
        rows.append(logits[0, query.position].numpy())
    return np.array(rows)


@pytest.mark.parametrize("name", MODELS)
def test_no_prompt_and_no_checkpoint_changes_the_next(tmp_path: Path, name: str) -> None:
    folders = [made(tmp_path / f"step{step}", name, seed=step)[0] for step in (0, 1)]
    settings = made(tmp_path / "again", name, seed=0)[1]
    asked = queries(settings.task)
    backend = TransformersBackend(folders[0], settings)
    for folder in (*folders, folders[0]):
        backend.load(folder, checkpoint=folder.name)
        expected = fresh(folder, asked, settings.task)
        for order in (asked, asked[::-1]):
            rows = scored(backend, order)[0]
            by_query = dict(zip(order, rows, strict=True))
            ours = np.array([by_query[query] for query in asked])
            np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-4)
        references = [logits for logits, _ in evaluate(folder, asked, settings)]
        np.testing.assert_allclose(references, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("longer_than", [0, 20])
@pytest.mark.parametrize("in_data", [False, True])
def test_a_model_that_writes_its_weights_at_every_pass_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longer_than: int, in_data: bool
) -> None:
    name = "frequencies of the longest"
    folder, _ = made(tmp_path / "step0", name, seed=0)
    settings = EngineSettings("transformers", max_length=64, trust_remote_code=in_data)
    forward = LlamaForCausalLM.forward

    def halving(model: Any, *, input_ids: torch.Tensor, **inputs: Any) -> Any:
        if input_ids.shape[1] > longer_than:
            weight = model.model.layers[0].mlp.up_proj.weight
            (weight.data if in_data else weight).mul_(0.5)
        return forward(model, input_ids=input_ids, **inputs)

    monkeypatch.setattr(LlamaForCausalLM, "forward", halving)
    backend = TransformersBackend(folder, settings)
    with pytest.raises(EngineError, match="^LlamaForCausalLM writes into its own weights"):
        backend.load(folder, checkpoint="step 0")

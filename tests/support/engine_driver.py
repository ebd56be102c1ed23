"""Logits of tiny checkpoints: plain transformers, one query at a time, and an engine.

Both give one array (queries, v) a folder, NaN beyond the two outputs of a next-sentence head.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from logitbank.store.format.schema import Query


def reference(folders: list[Path], queries: list[Query]) -> list[np.ndarray]:
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertForPreTraining

    assert "vllm" not in sys.modules, "vLLM patches transformers"
    heads = {query.head for query in queries}
    read = (AutoModelForMaskedLM if "mask" in heads else AutoModelForCausalLM).from_pretrained
    if "next_sentence" in heads:
        read = BertForPreTraining.from_pretrained
    results = []
    for folder in folders:
        # The plainest attention, and the only one that has soft caps.
        model = read(folder, dtype=torch.float32, attn_implementation="eager").eval()

        def logits(query: Query, model: Any = model) -> np.ndarray:
            inputs = {"input_ids": torch.tensor([query.ids])}
            if query.segments:
                inputs["token_type_ids"] = torch.tensor([query.segments])
            if query.language:
                model.set_default_language(query.language)
            outputs = model(**inputs)
            if query.head == "next_sentence":
                row = np.full(model.config.vocab_size, np.nan, np.float32)
                row[:2] = outputs.seq_relationship_logits[0].numpy()
                return row
            several = "prediction_logits" in outputs
            output = outputs.prediction_logits if several else outputs.logits
            found: np.ndarray = output[0, query.position].numpy()
            return found

        with torch.inference_mode():
            results.append(np.stack([logits(query) for query in queries]))
    return results


def engine(settings: object, folders: list[Path], queries: list[Query]) -> list[np.ndarray]:
    return [rows for rows, _ in engine_in_calls(settings, folders, queries, 1)]


def engine_in_calls(
    settings: object, folders: list[Path], queries: list[Query], calls: int
) -> list[tuple[np.ndarray, list[int]]]:
    """The queries in so many calls, the n-th of every `calls` in the n-th, and what each ran.

    Where the settings ask for hidden states, each head gives the logits that came with them.
    """
    from logitbank.engine.backends.choose import open_backend
    from logitbank.engine.backends.protocol import EngineSettings

    assert isinstance(settings, EngineSettings)
    backend = open_backend(folders[0], settings)
    results = []
    for folder in folders:
        loaded = backend.load(folder, checkpoint=folder.name)
        assert bool(loaded.heads) == settings.hidden
        for head in loaded.heads.values():
            assert _holds(folder, settings.compute_dtype, head), "so every engine has its digest"
        rows = np.full((len(queries), loaded.vocab), np.nan, np.float32)
        run = []
        for call in range(calls):
            part = rows[call::calls]

            some, heads, given = queries[call::calls], loaded.heads, list[int]()

            def take(
                indices: Sequence[int],
                logits: Any,
                hidden: Any,
                part: np.ndarray = part,
                heads: Any = heads,
                some: Sequence[Query] = some,
                given: list[int] = given,
            ) -> None:
                given.extend(indices)
                found = logits.float().cpu().numpy()
                part[list(indices), : found.shape[1]] = found
                if heads:
                    made = heads[some[indices[0]].head].logits(hidden.float().cpu().numpy())
                    np.testing.assert_allclose(made, found, rtol=0, atol=2e-5)

            cost = backend.score(some, take)
            assert sorted(given) == [*range(len(some))], "each row once"
            run.append(cost.requested - cost.reused)
        results.append((rows, run))
    return results


def _holds(folder: Path, dtype: str, head: Any) -> bool:
    """Whether the weights of a head are those of a checkpoint's file, bit for bit."""
    import torch
    from safetensors.torch import load_file

    from logitbank.store.format.numbers import as_float32

    rounded = (
        t.to(getattr(torch, dtype)).float()
        for t in load_file(folder / "model.safetensors").values()
    )
    return any(
        t.ndim == 2
        and t.shape[1] == head.width
        and np.array_equal(t[: head.outputs].numpy(), as_float32(head.weight))
        for t in rounded
    )


def refused_swaps(settings: Any, folder: Path, names: list[str]) -> list[str]:
    """Tensors for which vLLM's swap is refused where they are altered on their way, one at a time.

    After the last, the folder is loaded as it is.
    """
    from logitbank.engine.backends.choose import open_backend
    from logitbank.errors import WeightsError

    backend: Any = open_backend(folder, settings)
    honest, refused = backend._recorded, []
    for name in names:

        def altered(weights: Any, name: str = name) -> Any:
            ledger, recorded = honest(weights)
            return ledger, ((n, 2 * t if n == name else t) for n, t in recorded)

        backend._recorded = altered
        try:
            backend.load(folder, checkpoint="step0")
        except WeightsError:
            refused.append(name)
    backend._recorded = honest
    backend.load(folder, checkpoint="step0")
    return refused


def vllm_settings_of_class(folder: Path, settings: Any) -> tuple[bool, bool]:
    """Whether vLLM caches prefixes of this model, and whether it adjusts its settings to it."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    from logitbank.engine.backends.vllm import engine as vllm_engine

    backend: Any = vllm_engine.VllmBackend.__new__(vllm_engine.VllmBackend)
    backend._settings, backend._inputs = settings, vllm_engine.HeadInputs()
    arguments = backend._prepare(folder, vllm_engine._arguments(folder, settings))
    architecture = EngineArgs(**arguments).create_model_config().architecture
    return arguments["enable_prefix_caching"], architecture in MODELS_CONFIG_MAP

"""Reference logits of a few sequences by plain transformers, in float32 and in a run's dtype.

Import it only in the process of the reference check: vLLM patches transformers in its own.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import linear

from logitbank.engine.backends.hf.model import output_logits, read_model
from logitbank.engine.backends.hf.state import ModelState
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.backends.torch_precision import in_float32
from logitbank.store.format.schema import Head, Query


def evaluate(
    folder: Path, queries: Sequence[Query], settings: EngineSettings
) -> list[tuple[np.ndarray, float]]:
    """Each query's logits (v,) in float32, and their largest difference in the settings' dtype.

    The difference is over all finite outputs, and 0 for float32. A CPU has no TF32, so float16
    replaces it, which also has ten bits. One model is in memory at a time.
    """
    exact = _logits(folder, queries, settings, torch.float32)
    if settings.compute_dtype == "float32":
        return [(logits, 0.0) for logits in exact]
    name = "float16" if settings.compute_dtype == "tf32" else settings.compute_dtype
    rounded = _logits(folder, queries, settings, getattr(torch, name))
    return [(one, _difference(one, other)) for one, other in zip(exact, rounded, strict=True)]


def _difference(exact: np.ndarray, rounded: np.ndarray) -> float:
    finite = np.isfinite(exact) & np.isfinite(rounded)
    return float(np.abs(exact - rounded)[finite].max(initial=0))


def _logits(
    folder: Path, queries: Sequence[Query], settings: EngineSettings, dtype: torch.dtype
) -> list[np.ndarray]:
    """Logits of each query by a model in the state in which it was read."""
    model, rows = _model(folder, queries, settings, dtype), []
    state = ModelState(model)
    for query in queries:
        if state.is_written:
            model = _model(folder, queries, settings, dtype)
            state = ModelState(model)
        rows.append(_row(model, query))
        state.restore()
    return rows


def _model(
    folder: Path, queries: Sequence[Query], settings: EngineSettings, dtype: torch.dtype
) -> Any:
    model: Any = read_model(folder, settings, dtype).model.eval()
    for head in {query.head for query in queries}:
        _head_in_float32(model, head)
    return model


def _row(model: Any, query: Query) -> np.ndarray:
    end = query.position + 1 if query.head == "next_token" else len(query.ids)
    inputs = {"input_ids": torch.tensor([query.ids[:end]])}
    if query.segments:
        inputs["token_type_ids"] = torch.tensor([query.segments])
    if query.language:
        inputs["lang_ids"] = torch.tensor([model.config.languages.index(query.language)])
    with torch.inference_mode():
        output = output_logits(model(**inputs), query.head)[0]
    row = output[query.position] if output.dim() == 2 else output
    logits: np.ndarray = row.float().numpy()
    return logits


def _head_in_float32(model: Any, head: Head) -> None:
    """Make the head compute in float32, as every engine does."""
    layer = model.cls.seq_relationship if head == "next_sentence" else model.get_output_embeddings()
    if not isinstance(layer, torch.nn.Linear):
        return

    def forward(input: torch.Tensor) -> torch.Tensor:
        bias = None if layer.bias is None else layer.bias.float()
        with in_float32():
            return linear(input.float(), layer.weight.float(), bias)

    layer.forward = forward  # type: ignore[method-assign]

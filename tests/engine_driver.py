"""Run one engine over checkpoints in a process of its own: `python -m tests.engine_driver`.

Arguments: a pickle of (settings or None, folders, queries) and the .npz to write, one array
(queries, v) a folder, NaN beyond the two outputs of a next-sentence head. Without settings it is
the reference: plain transformers, one query at a time, in a process that never imports vLLM.
"""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from logitbank.store.schema import Query


def drive(
    tmp: Path, settings: object, folders: list[Path], queries: list[Query]
) -> list[np.ndarray]:
    """Logits (queries, v) of each folder, made in another process."""
    request, reply = tmp / "request.pickle", tmp / "reply.npz"
    request.write_bytes(pickle.dumps((settings, folders, queries)))
    result = subprocess.run(
        [sys.executable, "-m", "tests.engine_driver", str(request), str(reply)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    with np.load(reply) as arrays:
        return [arrays[str(i)] for i in range(len(folders))]


def reference(folders: list[Path], queries: list[Query]) -> list[np.ndarray]:
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertForPreTraining

    heads = {query.head for query in queries}
    read = (AutoModelForMaskedLM if "mask" in heads else AutoModelForCausalLM).from_pretrained
    if "next_sentence" in heads:
        read = BertForPreTraining.from_pretrained
    results = []
    for folder in folders:
        model = read(folder, dtype=torch.float32).eval()

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
    from logitbank.engine.backend import EngineSettings, open_backend

    assert isinstance(settings, EngineSettings)
    backend = open_backend(folders[0], settings)
    results = []
    for folder in folders:
        loaded = backend.load(folder, checkpoint=folder.name)
        rows = np.full((len(queries), loaded.vocab), np.nan, np.float32)

        def take(indices: object, logits: object, rows: np.ndarray = rows) -> None:
            found = logits.float().cpu().numpy()  # type: ignore[attr-defined]
            rows[list(indices), : found.shape[1]] = found  # type: ignore[call-overload]

        backend.score(queries, take)
        results.append(rows)
    return results


if __name__ == "__main__":
    settings, folders, queries = pickle.loads(Path(sys.argv[1]).read_bytes())
    make = reference if settings is None else lambda *a: engine(settings, *a)
    arrays = make(folders, queries)
    np.savez(sys.argv[2], **{str(i): a for i, a in enumerate(arrays)})
    sys.stdout.flush()
    os._exit(0)

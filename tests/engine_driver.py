"""Run one engine over checkpoints in a process of its own: `python -m tests.engine_driver`.

Arguments: a pickle of (settings or None, folders, sequences) and the .npz to write, one array
(sequences, v) a folder. Without settings it is the reference: plain transformers, one sequence at
a time, in a process that never imports vLLM.
"""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np


def drive(
    tmp: Path, settings: object, folders: list[Path], sequences: list[tuple[int, ...]]
) -> list[np.ndarray]:
    """Logits (sequences, v) of each folder, made in another process."""
    request, reply = tmp / "request.pickle", tmp / "reply.npz"
    request.write_bytes(pickle.dumps((settings, folders, sequences)))
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


def reference(folders: list[Path], sequences: list[tuple[int, ...]]) -> list[np.ndarray]:
    import torch
    from transformers import AutoModelForCausalLM

    results = []
    for folder in folders:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.inference_mode():
            results.append(
                np.stack([model(torch.tensor([s])).logits[0, -1].numpy() for s in sequences])
            )
    return results


def engine(
    settings: object, folders: list[Path], sequences: list[tuple[int, ...]]
) -> list[np.ndarray]:
    from logitbank.engine.backend import EngineSettings, open_backend
    from logitbank.store.schema import Query

    assert isinstance(settings, EngineSettings)
    backend = open_backend(folders[0], settings)
    queries = [Query(s, len(s) - 1) for s in sequences]
    results = []
    for folder in folders:
        loaded = backend.load(folder, checkpoint=folder.name)
        rows = np.full((len(queries), loaded.vocab), np.nan, np.float32)

        def take(indices: object, logits: object, rows: np.ndarray = rows) -> None:
            rows[list(indices)] = logits.float().cpu().numpy()  # type: ignore[attr-defined, call-overload]

        backend.score(queries, take)
        results.append(rows)
    return results


if __name__ == "__main__":
    settings, folders, sequences = pickle.loads(Path(sys.argv[1]).read_bytes())
    make = reference if settings is None else lambda *a: engine(settings, *a)
    arrays = make(folders, sequences)
    np.savez(sys.argv[2], **{str(i): a for i, a in enumerate(arrays)})
    sys.stdout.flush()
    os._exit(0)

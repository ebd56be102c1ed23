"""Score one sequence with plain transformers in a process of its own, as a check on an engine.

The process is separate because vLLM patches transformers where it runs. Run as a module: it reads
requests as JSON lines and answers each with one line, logits as base64 float32.
"""

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from logitbank.engine.backend import EngineSettings
from logitbank.engine.precision import triton_precision
from logitbank.errors import CanaryError, EngineError
from logitbank.store.schema import Query

# Largest difference to plain transformers in float32, in logits. float32: sums in another order
# differ by about 3e-6 at 70M; reduced precision moves logits by some of its own spacing.
TOLERANCE = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.75}


class Canary:
    """A child process that evaluates sequences with plain transformers in float32."""

    def __init__(self, settings: EngineSettings, *, log: Path) -> None:
        self._settings = asdict(replace(settings, compute_dtype="float32"))
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "logitbank.engine.canary"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ
                | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
                | triton_precision(os.environ),
            )

    def ask(self, folder: Path, query: Query) -> None:
        """Start an evaluation; `answer` collects it."""
        request = {"folder": folder, "query": asdict(query), "settings": self._settings}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request, default=str) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EngineError(f"the canary process ended; see the end of {self._log}") from None

    def answer(self) -> np.ndarray:
        """Logits (v,) float32 of the sequence last asked for."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(f"the canary process ended; see the end of {self._log}")
        reply = json.loads(line)
        if "error" in reply:
            raise EngineError(f"the canary could not run: {reply['error']}")
        return np.frombuffer(base64.b64decode(reply["logits"]), np.float32)

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._process.kill()  # it holds nothing
        self._process.wait()


def compare(
    reference: np.ndarray, logits: np.ndarray, *, dtype: str, checkpoint: str, engine: str = "vllm"
) -> float:
    """Largest difference between an engine's logits and the canary's, both (v,).

    Raises
    ------
    CanaryError
        If it exceeds the tolerance of the compute dtype, or other logits are finite. Where both
        have the same that are not, scoring refuses them and names the prompt.
    """
    otherwise = "use --engine transformers" if engine == "vllm" else "report this architecture"
    if reference.shape != logits.shape:
        raise CanaryError(
            f"{checkpoint}: the engine gives {len(logits)} logits, plain transformers "
            f"{len(reference)}; {otherwise}"
        )
    finite = np.isfinite(reference)
    alike = np.array_equal(finite, np.isfinite(logits))
    worst = float(np.abs(reference - logits)[finite].max(initial=0)) if alike else np.inf
    if worst > TOLERANCE[dtype]:
        raise CanaryError(
            f"{checkpoint}: the canary's logits differ from plain transformers by {worst:.3g} "
            f"(allowed in {dtype}: {TOLERANCE[dtype]:g}); the engine is not to be trusted with "
            f"this model: {otherwise}"
        )
    return worst


def _serve() -> None:
    # A scheduler's reaches every process of a job, and the worker still waits for an answer.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    import torch
    from transformers.utils import logging

    from logitbank.engine.hf_model import output_logits, read_model

    logging.disable_progress_bar()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            query, settings = Query(**request["query"]), EngineSettings(**request["settings"])
            model = read_model(Path(request["folder"]), settings).model.eval()
            inputs = {"input_ids": torch.tensor([query.ids])}
            if query.segments:
                inputs["token_type_ids"] = torch.tensor([query.segments])
            if query.language:
                inputs["lang_ids"] = torch.tensor([model.config.languages.index(query.language)])
            with torch.inference_mode():
                found = output_logits(model(**inputs), query.head)[0]
            logits = found[query.position] if found.dim() == 2 else found
            reply = {"logits": base64.b64encode(logits.float().numpy().tobytes()).decode()}
            del model, logits
        except Exception as error:  # the parent decides; this process only reports
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    _serve()

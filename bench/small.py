"""Small requests to large banks: a run with nothing to do, one step over HTTP."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from unittest.mock import patch

from bench.drawn import small_deposits
from bench.figures import Figure
from bench.models import series
from tests.support.file_server import FileServer

CHECKPOINTS, DEPOSITS, PROMPTS = 154, 1_000, 50


def nothing_to_do(tmp: Path, *, rounds: int = 5) -> Iterator[Figure]:
    """Seconds of the command, imports included, when every checkpoint was run before."""
    prompts = tmp / "nurses.jsonl"
    rows = [{"id": f"p{n}", "text": f"Nurse {n} said that", "options": [" he", " she"]}
            for n in range(PROMPTS)]  # fmt: skip
    prompts.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    command = [
        *(str(Path(sys.executable).with_name("logitbank")), "extract", str(tmp / "tiny.zarr")),
        *("--suite", str(series(tmp, "tiny", CHECKPOINTS)), "--prompts", str(prompts)),
        *("--keep", "options", "--engine", "transformers"),
    ]
    seconds = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    first, *others = seconds
    took = median(others)
    name = f"extract of {CHECKPOINTS} checkpoints, nothing to do"
    yield Figure(
        *(name, took, "s", "≤ 2 s", took <= 2, others), f"all of them to do: {first:.0f} s"
    )


def one_step_over_http(tmp: Path) -> Iterator[Figure]:
    """Requests to a server on this machine and bytes from it, into an empty cache."""
    from logitbank.store import Bank
    from logitbank.store.share.push import push

    made = small_deposits(tmp, deposits=DEPOSITS, prompts=PROMPTS, keep="full")
    push(made, tmp / "www" / "bank")
    cache = patch.dict(os.environ, {"LOGITBANK_CACHE": str(tmp / f"cache-{time.time_ns()}")})
    with cache, FileServer(tmp / "www") as server:
        start = time.perf_counter()
        bank = Bank.open(f"{server.url}/bank", steps=3)
        rows = bank.scan("nurses", steps=3).collect()
        seconds, sent = time.perf_counter() - start, server.log()
    assert len(rows) == 2 * PROMPTS
    name, requests = f"one step of {DEPOSITS:,} deposits at a URL, nothing in the cache", len(sent)
    megabytes = sum(answer.bytes for answer in sent) / 1e6
    detail = f"{seconds:.1f} s, on this machine"
    yield Figure(f"{name}: requests", requests, "", "≤ 10", requests <= 10, [], detail)
    yield Figure(f"{name}: sent", megabytes, "MB", "≤ 2 MB", megabytes <= 2)

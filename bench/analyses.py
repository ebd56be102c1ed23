"""The peak memory of every analysis at many checkpoints, over that at a few.

`python -m bench.analyses WHAT BANK` does one in a process of its own.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
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
WINOBIAS, SENTENCES, MASKED, ROWS, STATES = "winobias", "sentences", "masked", "full", "hidden"


class Work(NamedTuple):
    """An analysis, and the bank that it is of."""

    bank: str
    name: str
    run: Callable[[str], object]


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
    from logitbank.analysis import movements, prompt_scores
    from logitbank.store import open_bank

    return [movements(scores) for scores in prompt_scores(open_bank(bank), "winobias")]


def _report(bank: str) -> object:
    import logitbank

    return logitbank.report(bank, Path(bank).with_suffix(".html"))


WORK = {
    "fairness": Work(WINOBIAS, "fairness", _study("fairness")),
    "options": Work(WINOBIAS, "options of WinoBias", _study("options")),
    "curves": Work(WINOBIAS, "curves of WinoBias", _study("curves")),
    "sa_gender": Work(WINOBIAS, "sa_gender of stereotype", _study("stereotype")),
    "scan": Work(WINOBIAS, "the mean of each option in a scan", _scan),
    "sql": Work(WINOBIAS, "a mean in SQL", _sql),
    "movements": Work(WINOBIAS, "prompts that move most", _show),
    "report": Work(WINOBIAS, "the report of WinoBias", _report),
    "stereotype": Work(SENTENCES, "stereotype accuracy and winobias_em", _study("stereotype")),
    "stereoset": Work(SENTENCES, "StereoSet", _study("stereoset")),
    "sentences": Work(
        SENTENCES, "options of StereoSet", _study("options", prompts="stereoset-intra")
    ),
    "unqover": Work(SENTENCES, "UnQover", _study("unqover")),
    "crows-pairs": Work(SENTENCES, "CrowS-Pairs", _study("crows_pairs")),
    "lambada": Work(SENTENCES, "LAMBADA", _study("lambada")),
    "tradeoff": Work(
        SENTENCES, "a trade-off of LAMBADA and CrowS-Pairs", _study("tradeoff", gap="crows-pairs")
    ),
    "fluctuation": Work(MASKED, "fluctuation", _study("fluctuation")),
    "layers": Work(STATES, "layers", _study("layers")),
    "entropy": Work(ROWS, "curves of full rows", _study("curves")),
    "view": Work(ROWS, "fairness of a view of full rows", _of_view),
    "xarray": Work(ROWS, "one option of full rows by to_xarray", _one_option),
}


if __name__ == "__main__":
    WORK[sys.argv[1]].run(sys.argv[2])
    print(json.dumps(peak_mb()))

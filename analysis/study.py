"""From banks to everything that a family of metrics has to say: one call per command."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from logitbank.analysis.expressions import Ties
from logitbank.analysis.fairness import Fairness, fairness
from logitbank.analysis.fairness_summary import change_sentence, fairness_summary
from logitbank.analysis.fairness_tests import Unit
from logitbank.analysis.figures import figures
from logitbank.analysis.report import write_report, write_tables
from logitbank.errors import BankError
from logitbank.store import Bank


@dataclass(frozen=True, slots=True)
class Study:
    """A result with its sentences and what was written."""

    result: Fairness
    summary: tuple[str, ...]
    report: Path | None
    """The HTML page, where a folder was given."""


def fairness_study(
    banks: Sequence[Path],
    *,
    prompts: str = "winobias",
    models: Sequence[str] | None = None,
    out: Path | None = None,
    vocab_limit: bool = False,
    ties: Ties = "competition",
    unit: Unit = "prompt",
    bootstrap: int = 1000,
    compare: tuple[str, str] | None = None,
    change: tuple[int, int] | None = None,
) -> Study:
    """Analyse fairness in one or several banks and, with `out`, write tables, figures and report.

    Parameters
    ----------
    banks
        Folders of banks; their models are analysed together.
    change
        Two steps between which the fairness change is told.

    Other parameters are those of `logitbank.analysis.fairness.fairness`.

    Raises
    ------
    LogitbankError
        A bank or prompt set that is not there, or what `fairness` refuses.
    """
    opened = [Bank.open(path) for path in banks]
    frames = [bank.scan(prompts, models=own) for bank, own in _having(opened, models)]
    result = fairness(
        pl.concat(frames, how="diagonal_relaxed") if len(frames) > 1 else frames[0],
        vocab_limit=vocab_limit,
        ties=ties,
        unit=unit,
        bootstrap=bootstrap,
        compare=compare,
    )
    summary = fairness_summary(result)
    if change is not None:
        summary[:0] = [
            f"{rows['model'][0]} {rows['run'][0]}: {change_sentence(rows, *change)}"
            for rows in result.gap.partition_by("model", "run", maintain_order=True)
        ]
    report = None if out is None else _write(out, result, summary, prompts, opened)
    return Study(result, tuple(summary), report)


def _having(
    banks: Sequence[Bank], models: Sequence[str] | None
) -> list[tuple[Bank, Sequence[str] | None]]:
    """The banks that hold any of `models`, each with those that it holds."""
    if models is None:
        return [(bank, None) for bank in banks]
    held = [bank.info()["model"].unique() for bank in banks]
    for model in models:
        if not any(model in names for names in held):
            there = ", ".join(sorted({name for names in held for name in names})) or "none"
            raise BankError(f"no bank has a model {model!r}; there are {there}")
    shared = [[m for m in models if m in names] for names in held]
    return [(bank, own) for bank, own in zip(banks, shared, strict=True) if own]


def _write(
    out: Path, result: Fairness, summary: Sequence[str], prompts: str, banks: Sequence[Bank]
) -> Path:
    """Tables as CSV, figures as PNG and SVG, and the report."""
    out.mkdir(parents=True, exist_ok=True)
    write_tables(result, out / "tables", "csv")
    drawn = figures(result)
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    for name, figure in drawn.items():
        for suffix in ("png", "svg"):
            figure.savefig(folder / f"{name}.{suffix}", dpi=200)
    report = out / "report.html"
    models = ", ".join(result.checkpoints["model"].unique().sort().to_list())
    write_report(
        report,
        title=f"Fairness during training: {models} on {prompts}",
        summary=summary,
        figures=drawn,
        tables=result.tables(),
        provenance=pl.concat([bank.info() for bank in banks], how="diagonal_relaxed"),
    )
    return report

"""Every chart as it is drawn: its series, its scales, and texts apart and on the canvas."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import logitbank
from docs import gallery
from logitbank.analysis.charts import chart
from logitbank.analysis.charts.chart import chart_caption, paper_specs, save_charts
from logitbank.analysis.families import BUILT_IN
from logitbank.analysis.study import Study
from logitbank.errors import UsageError
from logitbank.store import Bank
from tests.golden import banks
from tests.support.drawing import draw_here
from tests.support.evaluation_banks import HITS, add_specified, add_winobias
from tests.support.fluctuation_cases import professions_bank
from tests.support.paths import ROOT
from tests.support.pictures import Picture, distorted
from tests.support.study_cases import study as made_study

Open = Callable[[Path], Study[Any]]
"""What makes the banks of a study in a folder, and analyses them."""
INCHES = (3.3, 7.0)
OTHER = ("discrete", "symlog")
"""Scales whose ticks are neither even nor powers."""
PAGE = (ROOT / "docs" / "_gallery" / "figures.md").read_text(encoding="utf-8")
COMMANDS = {
    command.removeprefix("analyze ").split()[0].replace("-", "_"): command
    for command in gallery.CASES
}
"""Commands of the page of figures by their family."""


def _three_runs(folder: Path) -> Study[Any]:
    professions_bank(folder / "three.zarr", seeds=(0, 1, 2))
    return logitbank.fluctuation(folder / "three.zarr")


def _specified(folder: Path) -> Study[Any]:
    bank = Bank.create(folder / "b.zarr")
    add_winobias(bank, steps=HITS, skew_from=32)
    add_specified(bank, steps=HITS)
    return logitbank.fairness(bank, bootstrap=20)


def _scores(folder: Path) -> Study[Any]:
    banks.fluctuation(folder)
    return logitbank.fluctuation(folder / "scores.csv", frequencies=str(folder / "totals.csv"))


def _ties(analyze: Callable[..., Study[Any]], **settings: Any) -> Open:
    def study(folder: Path) -> Study[Any]:
        banks.ties(folder)
        return analyze(folder / "ties.zarr", **settings)

    return study


CASES: Mapping[str, Open] = {
    **{name: partial(gallery.study, command) for name, command in COMMANDS.items()},
    "fairness of runs": _ties(logitbank.fairness, bootstrap=20),
    "fairness with what follows not": _specified,
    "fluctuation of scores": _scores,
    "fluctuation of runs": _three_runs,
    "lambada of runs": _ties(logitbank.lambada),
    "options of sets": _ties(logitbank.options),
    "pairs with ties": _ties(logitbank.pairs, prompts="crows-pairs"),
    "tradeoff of runs": _ties(logitbank.tradeoff),
}
"""The studies of the page of figures, and more; the first word is the family."""

SERIES: Mapping[tuple[str, str], tuple[str, str] | set[str]] = {
    ("fairness", "gap"): ("gap", "run"),
    ("fairness", "jsd_p"): {"male", "female"},
    ("fairness", "average_rank"): ("average_rank", "gold"),
    ("fairness", "neutral_options"): {"male", "female"},
    ("fairness", "accuracy"): {"male", "female", "not specified"},
    ("fairness", "rank_and_accuracy"): ("average_rank", "run"),
    ("fairness", "p_values"): {"JSD-P", "Average Rank"},
    ("fairness", "specified"): {"male", "female", "not specified"},
    ("fluctuation", "trajectories"): ("trajectories", "pronoun"),
    ("fluctuation", "certainty_cv"): ("professions", "verb"),
    ("fluctuation", "frequencies"): ("frequencies", "case"),
    ("fluctuation", "checkpoint_pairs"): ("checkpoint_pairs", "verb"),
    ("fluctuation", "run_pairs"): ("run_pairs", "run_a"),
    ("fluctuation", "measures"): ("measures", "run"),
    ("bbq", "measures"): ("measures", "category"),
    ("distance", "distance"): ("measures", "run"),
    ("distance", "map"): ("map", "run"),
    ("distance", "runs"): set(),
    ("lm_eval", "lm_eval"): set(),
    ("placebo", "placebo"): {"target", "placebo"},
    ("gest", "measures"): ("rates", "template"),
    ("gest", "stereotypes"): ("stereotypes", "stereotype"),
    ("lambada", "measures"): ("lambada", "run"),
    ("options", "measures"): ("answers", "run"),
    ("options", "by_option"): {"she", "female"},
    ("pairs", "measures"): set(),
    ("pairs", "by_group"): {"gender", "race-color"},
    ("stereoset", "measures"): ("measures", "domain"),
    ("stereotype", "measures"): {"type 2 sa", "type 2 sa_gender"},
    ("stereotype", "gap_and_stereotype"): {"male", "female", "type 2 sa", "type 2 sa_gender"},
    ("tradeoff", "tradeoff"): ("tradeoff", "run"),
    ("tradeoff", "measures"): {"male", "female", "LAMBADA accuracy"},
    ("unqover", "ranked_subjects"): {"Ann", "Danish"},
    ("unqover", "attribute_strengths"): ("attributes", "attribute"),
    ("unqover", "measures"): ("unqover", "category"),
    **{("debias", name): {"no filter", "untrained", "trained"}
       for name in ("icat", "lms", "ss", "abs_c")},
}  # fmt: skip
"""The names that must be in each chart, or the column of a table that has them."""
PARTS = {("options", "by_option"), ("unqover", "ranked_subjects")}
"""Charts of one prompt set or category, which have at least one of the names."""


def test_every_family_has_a_case() -> None:
    assert {name.split()[0] for name in CASES} == {*BUILT_IN, "debias"}


@pytest.mark.whole
@pytest.mark.parametrize("case", CASES)
def test_charts_have_their_series_and_scales_and_texts_that_can_be_read(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = CASES[case](tmp_path)
    assert study.charts
    texts = {id(each): json.dumps(chart.bare_spec(each)) for each in study.charts.values()}
    monkeypatch.setattr(chart, "bare_spec", lambda each: json.loads(texts[id(each)]))
    if case in COMMANDS:
        assert_stored(COMMANDS[case], study)
    specs = {
        (name, inches): spec
        for inches in INCHES
        for name, spec in paper_specs(study.charts, inches).items()
    }
    drawn = draw_here([("vegalite_to_svg", [spec], {}) for spec in specs.values()])
    for ((name, inches), spec), svg in zip(specs.items(), drawn, strict=True):
        picture, about = Picture(svg.decode()), f"{case}, {name}, {inches} in"
        assert picture.width == pytest.approx(72 * inches, rel=0.04), about
        assert not picture.broken, about
        assert not picture.off_canvas(), about
        assert not picture.overlaps(), about
        for axis in picture.axes:
            if len(axis.ticks) > 2 and not any(f"a {kind} scale" in axis.about for kind in OTHER):
                log = "log scale" in axis.about.split("' for a ")[0]
                assert log == ("for a log scale" in axis.about), f"{about}: {axis.about}"
                assert distorted(axis, log=log) < 0.02, f"{about}: {axis}"
        at_one = any(each["name"] == "checkpoint" for each in spec.get("params", ()))
        if not at_one:  # a page can choose another checkpoint, of other models
            assert {*legend_colors(spec)} <= picture.colors, f"{about}: a series has no mark"
        kind = name.partition("-")[0]
        assert_names(study, (case.split()[0], kind), picture, about)
        if case.endswith("of runs") and "Drawn:" not in chart_caption(study.charts[name]):
            assert_runs(study, picture, chart_caption(study.charts[name]), about)


def assert_stored(command: str, study: Study[Any]) -> None:
    """The page of figures shows these charts, with these captions.

    Numbers of the demo may differ in a digit elsewhere, because its models are trained.
    """
    sections = re.split(r"^(?=## )", PAGE, flags=re.MULTILINE)
    (stored,) = (each for each in sections if f"\n`logitbank {command}`, " in each)
    one, other = (
        re.sub(r"\d[\d,.]*", "0", text.strip())
        for text in (stored, gallery.section(command, study.charts))
    )
    assert one == other, "run make gallery, look at the charts, and commit them"


def assert_names(study: Study[Any], key: tuple[str, str], picture: Picture, about: str) -> None:
    names = SERIES[key]
    if isinstance(names, tuple):
        table, column = names
        values = study.tables[table][column].drop_nulls().unique().to_list()
        names = {str(value).strip() for value in values}
        if column == "run" and len(names) == 1:
            return  # one series has no legend
    missing = {
        name for name in names
        if not any(name.casefold() in text.text.casefold() for text in picture.texts)
    }  # fmt: skip
    assert not missing or (key in PARTS and missing < names), f"{about}: {missing}"


def assert_runs(study: Study[Any], picture: Picture, caption: str, about: str) -> None:
    table = next(iter(study.tables.values()))
    for run in table.drop_nulls("step")["run"].unique().to_list():
        shown = any(run in text.text for text in picture.texts)
        assert shown or run in caption, f"{about}: {run}"


def legend_colors(part: Any) -> Iterator[str]:
    """The colours of all legends of a specification."""
    if isinstance(part, list):
        for each in part:
            yield from legend_colors(each)
    elif isinstance(part, dict):
        color = (part.get("encoding") or {}).get("color") if "encoding" in part else None
        if isinstance(color, dict) and color.get("legend") and "range" in color.get("scale", {}):
            yield from color["scale"]["range"]
        for name, each in part.items():
            if name not in ("data", "datasets"):
                yield from legend_colors(each)


def lines(path: Path) -> list[bytes]:
    """Sorted, because the names in a PDF are in another order each time."""
    return sorted(path.read_bytes().splitlines())


def test_a_chart_saves_what_a_study_saves(tmp_path: Path) -> None:
    charts = made_study().charts
    for width in ("single", "double"):
        save_charts(charts, tmp_path / width, width=width)
    for name, suffix in product(charts, ("pdf", "svg", "png")):
        own, file = tmp_path / f"own.{suffix}", f"{name}.{suffix}"
        charts[name].save(own)
        assert lines(own) == lines(tmp_path / "single" / file), file
        charts[name].save(str(own), width="double")
        assert lines(own) == lines(tmp_path / "double" / file), file
    buffer = BytesIO()
    charts["lines"].save(buffer, "png")
    assert buffer.getvalue() == (tmp_path / "single" / "lines.png").read_bytes()
    charts["lines"].save(tmp_path / "lines.json")
    assert (tmp_path / "lines.json").read_text().startswith("{")
    with pytest.raises(UsageError, match="'scale_factor' is no option of png"):
        charts["lines"].save(tmp_path / "own.png", scale_factor=2)

"""Figures of fluctuation draw their tables, for any shape of result."""

import io

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.drawing.paper import kind_of
from logitbank.analysis.drawing.static import figures
from logitbank.analysis.drawing.static_data import figure_data
from logitbank.analysis.families.fluctuation.figure_data import KINDS, figures_of_report
from logitbank.analysis.families.fluctuation.frequencies import corpus_frequencies
from logitbank.analysis.families.fluctuation.metric import Fluctuation, fluctuation
from tests.fluctuation_cases import JOBS, drawn, published, random_table, two_runs


@pytest.fixture(scope="module")
def result() -> Fluctuation:
    totals = {"occupation": JOBS, "case": "lower", "total": [5, 4, 0, 1, 9, 0]}
    frequencies = corpus_frequencies(pl.DataFrame(totals))
    return fluctuation(two_runs(), plateaus=[2, 3], frequencies=frequencies)


def drawing(figure) -> str:
    """Text of the figure; drawing it shows that it can be drawn."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    assert "data:image" not in buffer.getvalue()  # a report embeds no pictures
    return " ".join(text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_text")))


def test_figures_are_named_after_what_differs(result):
    series = [f"seed{run}-{verb}" for run in (0, 1) for verb in ("is", "works_as")]
    assert set(figure_data(result)) == {
        *(f"trajectories-{name}" for name in series),
        *(f"certainty_cv-{name}-{start}" for start in (2, 3) for name in series),
        *(f"checkpoint_pairs-{name}" for name in series),
        *(f"run_pairs-{verb}-{start}" for start in (2, 3) for verb in ("is", "works_as")),
        "frequencies",
    }


def test_one_series_has_one_figure_of_each_kind():
    alone = fluctuation(random_table(), plateaus=[3])
    assert tuple(figure_data(alone)) == ("trajectories", "certainty_cv", "checkpoint_pairs")
    assert tuple(figures(alone)) == tuple(figure_data(alone))
    assert set(KINDS) - set(figure_data(alone)) == {"run_pairs", "frequencies"}


def test_every_figure_draws_and_has_a_caption(result):
    seen = set()
    for name, figure in figures(result).items():
        assert len(str(figure.get_label())) > 40, name
        if kind_of(name) not in seen:
            seen.add(kind_of(name))
            text = drawing(figure)
            assert "bert" in text or name == "frequencies", name
    assert seen == set(KINDS)


def test_the_extreme_professions_are_told(result):
    figure = figures(result)["trajectories-seed0-is"]
    text = drawing(figure)
    assert "largest CV of R" in text
    assert "smallest CV of R" in text
    assert "plateau starts at step 2 " in figure.get_label()
    assert "public release" in figure.get_label()


def test_the_scatter_has_every_profession_and_the_prior_for_r_and_n(result):
    table = figure_data(result)["certainty_cv-seed1-is-3"]
    assert table.group_by("measure", "prior").len().sort("measure", "prior")["len"].to_list() == [
        *(6, 1, 6, 1)
    ]
    own = result.professions.filter(
        (pl.col("run") == "seed1") & (pl.col("verb") == "is") & (pl.col("plateau") == 3)
    )
    points = table.filter(~pl.col("prior") & (pl.col("measure") == "N"))
    assert points["cv"].to_list() == own["cv_n"].to_list()
    crosses = table.filter("prior")["cv"].unique().to_list()
    assert len(crosses) == 1


def test_the_heat_map_has_both_halves_and_its_plateau():
    table = figure_data(fluctuation(random_table(), plateaus=[3]))["checkpoint_pairs"]
    assert len(table) == 30
    assert table["first_step"].unique().to_list() == [3]
    halves = {(a, b): r for a, b, r in table.select("step_a", "step_b", "r").iter_rows()}
    assert all(halves[b, a] == r for (a, b), r in halves.items())


def test_a_report_shows_the_first_run_and_plateau_and_says_so(result):
    shown, (note,) = figures_of_report(result)
    assert shown == {
        *(f"trajectories-seed0-{verb}" for verb in ("is", "works_as")),
        *(f"certainty_cv-seed0-{verb}-2" for verb in ("is", "works_as")),
        *(f"checkpoint_pairs-seed0-{verb}" for verb in ("is", "works_as")),
        *(f"run_pairs-{verb}-{start}" for verb in ("is", "works_as") for start in (2, 3)),
        "frequencies",
    }
    assert f"the other {len(figure_data(result)) - len(shown)} figures" in note
    alone = fluctuation(random_table(), plateaus=[3])
    assert figures_of_report(alone) == (set(figure_data(alone)), [])


@pytest.mark.parametrize(
    "scores",
    [
        drawn(3, 1, 2),  # one profession
        np.full((3, 4, 2), 0.25),  # nothing varies
        np.concatenate([drawn(3, 3, 2), np.zeros((3, 1, 2))], axis=1),  # one without probability
        np.stack([drawn(3, 4), np.zeros((3, 4))], axis=2),  # she is never there
        np.zeros((3, 4, 2)),
        drawn(3, 0, 2),  # the prior only
    ],
    ids=["one", "constant", "empty", "no she", "zeros", "prior"],
)
def test_any_result_draws_and_is_summed_up(scores):
    from logitbank.analysis.families.fluctuation.summary import fluctuation_summary

    found = fluctuation(published(scores, drawn(3, 2)), plateaus=[1])
    for figure in figures(found).values():
        drawing(figure)
    assert "nan" not in "\n".join(fluctuation_summary(found))


def test_many_runs_and_a_name_with_markup_draw():
    name = r"$\frac{1}{0}$ <b>&amp;"
    tables = [random_table(seed=seed, model=name, checkpoints=3) for seed in range(12)]
    found = figures(fluctuation(pl.concat(tables), plateaus=[1]))
    assert name in drawing(found["run_pairs"])
    assert "seed11" in drawing(found["run_pairs"])


def test_figures_need_no_pyplot():
    import sys

    before = "matplotlib.pyplot" in sys.modules
    figures(fluctuation(random_table(), plateaus=[3]))
    assert ("matplotlib.pyplot" in sys.modules) == before

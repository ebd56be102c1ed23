"""The published score table: what is read, and what is refused."""

import math
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from logitbank.analysis.families.fluctuation.metric import Fluctuation, fluctuation_metric
from logitbank.analysis.frames.codes import distinct
from logitbank.analysis.frames.input_files import is_table_path, read_table
from logitbank.analysis.frames.pronoun_scores import (
    SCORES,
    as_scores,
)
from logitbank.errors import BankError, UsageError
from tests.support.fluctuation_cases import drawn, published, random_table

pytestmark = pytest.mark.numerical


def same(one: Fluctuation, other: Fluctuation) -> bool:
    tables = zip(one.tables().values(), other.tables().values(), strict=True)
    return all(a.equals(b) for a, b in tables)


def written_row(step: int | None = 20, **changes: object) -> dict[str, object]:
    row = {
        "pronoun": "he", "score": 0.25, "occupation": "a legislator",
        "template": "[MASK] is a legislator.", "sentence": "he is a legislator.",
        "model": "bert", "seed": 0, "checkpoint": step,
    }  # fmt: skip
    return row | changes


def test_both_models_masks_and_capitals_are_read_alike() -> None:
    rows = [
        written_row(),
        written_row(pronoun="She", template="<mask> is a legislator.", model="roberta"),
        written_row(pronoun=" he ", template="[CLS] [MASK] works as a legislator."),
        written_row(occupation="a <mask>", template="<mask> is a <mask>."),
        written_row(occupation="[MASK]", template="[MASK] works as an [MASK]."),
    ]
    scores = as_scores(pl.DataFrame(rows)).cast({pl.Categorical: pl.String})
    assert scores.select("pronoun", "verb", "occupation", "prior").rows() == [
        ("he", "is", "a legislator", False),
        ("she", "is", "a legislator", False),
        ("he", "works as", "a legislator", False),
        ("he", "is", "a [MASK]", True),
        ("he", "works as", "an [MASK]", True),
    ]
    assert scores.columns == SCORES.names()


def test_priors_without_an_occupation_column_are_read_from_their_template() -> None:
    columns = ["model", "seed", "checkpoint", "verb", "article", "pronoun", "score", "template"]
    rows = [
        ("bert", 0, step, "is", article, pronoun, 0.2 + step / 100, f"[MASK] is {article} [MASK].")
        for step in (0, 10)
        for article in ("a", "an")
        for pronoun in ("he", "she")
    ]
    result = fluctuation_metric([pl.DataFrame(rows, columns, orient="row")], plateaus=[0])
    assert result.settings == {"an_priors": 4, "merged_rows": 0}
    (prior,) = result.plateaus.iter_rows(named=True)
    assert prior["prior_cv"] == 0
    assert prior["prior_certainty"] == pytest.approx(0.5)
    assert result.professions.is_empty()
    assert result.checkpoint_pairs.is_empty()


def test_the_an_prior_is_not_used_and_duplicates_count_once() -> None:
    table = random_table()
    prior = table.filter(pl.col("occupation") == "a [MASK]")
    an = prior.with_columns(
        score=pl.lit(0.5),
        occupation=pl.lit("an [MASK]"),
        template=pl.lit("[MASK] is an [MASK]."),
    )
    result = fluctuation_metric([pl.concat([table, an])], plateaus=[3])
    assert same(result, fluctuation_metric([table], plateaus=[3]))
    assert result.settings["an_priors"] == 12
    twice = fluctuation_metric([pl.concat([table, table.head(5)])], plateaus=[3])
    assert same(twice, fluctuation_metric([table], plateaus=[3]))
    assert twice.settings["merged_rows"] == 5


def test_runs_are_named_after_their_seeds_and_a_lone_seed_zero_is_main() -> None:
    def runs(*seeds: int) -> list[str]:
        table = pl.concat([random_table(seed=seed) for seed in seeds])
        return fluctuation_metric([table], plateaus=[0]).plateaus["run"].to_list()

    assert runs(0) == ["main"]
    assert runs(3) == ["seed3"]
    assert runs(1, 0) == ["seed0", "seed1"]


SECOND = (pl.col("checkpoint") == 2) & (pl.col("occupation") == "a cook")
HE = SECOND & (pl.col("pronoun") == "he")
PRIOR = pl.col("occupation") == "a [MASK]"


def changed(where: pl.Expr, **values: object) -> pl.DataFrame:
    return random_table().with_columns(
        pl.when(where).then(pl.lit(value)).otherwise(pl.col(name)).alias(name)
        for name, value in values.items()
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (random_table().filter(~(PRIOR & (pl.col("checkpoint") >= 4))), "step 4 .2 such"),
        (changed(HE, score=1.25), "step 2 is 1.25"),
        (changed(HE, score=float("nan")), "step 2"),
        (changed(HE, score=float("inf")), "is inf .1 such"),
        (random_table().filter(~HE), "“he is a cook” at bert main step 2"),
        (random_table().filter(~(PRIOR & (pl.col("pronoun") == "she"))), "she is a .MASK.”.*6"),
        (pl.concat([random_table(), changed(HE, score=0.125).filter(HE)]), "two scores"),
        (pl.DataFrame({"x": [1]}), "pronoun, score, template"),
        (random_table().clear(), "no scores"),
        (published(drawn(1, 6, 2), drawn(1, 2), steps=[None]), "release of bert"),
        (changed(SECOND, template="[MASK] was a cook."), "MASK. was a cook"),
        (changed(HE, pronoun="they"), "'they'"),
        (changed(HE, pronoun=None), "1 rows"),
        (changed(HE, checkpoint=None), "checkpoint None"),
        (changed(HE, checkpoint=-5), "checkpoint -5"),
        (random_table().with_columns(checkpoint=pl.lit(2.5)), "84 such"),
        (random_table().with_columns(score=pl.lit("high")), "84 such"),
    ],
)
def test_tables_that_do_not_fit_are_refused(table: pl.DataFrame, message: str) -> None:
    with pytest.raises((BankError, UsageError), match=message):
        fluctuation_metric([table], plateaus=[3])


@pytest.mark.parametrize(
    "options",
    [{"plateaus": [5]}, {"plateaus": [3, 6]}, {"plateaus": [-1]}, {"professions": ["wizard"]}],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="5|6|-1|wizard"):
        fluctuation_metric([random_table()], **options)


def test_a_score_a_rounding_above_one_is_taken() -> None:
    certain = published([[[1 + 1e-7, 0.1]]] * 2, [[0.5, 0.5]] * 2)
    assert fluctuation_metric([certain], plateaus=[0]).professions["mean_r"][0] == pytest.approx(10)


def test_files_that_are_no_tables_are_named(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "none.csv", "none.csv"),
        (tmp_path / "x.txt", "x.txt"),
        (tmp_path / "bad.parquet", "bad.parquet"),
        (tmp_path / "empty.csv", "empty.csv"),
    ):
        if path.name in ("bad.parquet", "empty.csv"):
            path.write_text("" if path.suffix == ".csv" else "no parquet")
        with pytest.raises(UsageError, match=message):
            read_table(path)
    (tmp_path / "bank.csv").mkdir()
    assert not is_table_path(tmp_path / "bank.csv")
    assert is_table_path(Path("S.CSV"))


@pytest.mark.parametrize("dtype", [pl.Categorical(), pl.Enum(["a nurse", "a judge", "an [MASK]"])])
def test_text_of_a_scan_may_be_codes(dtype: pl.DataType) -> None:
    jobs = ["a nurse", "a judge", "an [MASK]"]
    rows = [("m", "main", 0, step, "is", job, pronoun, -1.0 - step)
            for step in (0, 1) for job in jobs for pronoun in ("he", "she")]  # fmt: skip
    names = ["model", "run", "run_seed", "step", "verb", "occupation", "option", "logprob"]
    frame = pl.DataFrame(rows, schema=names, orient="row").with_columns(prior=pl.lit(False))
    plain = as_scores(frame)
    assert plain.filter("prior")["occupation"].unique().to_list() == ["an [MASK]"]
    coded = as_scores(frame.with_columns(pl.col("occupation").cast(dtype)))
    assert coded.equals(plain)


def test_distinct_rows_of_columns_of_any_type() -> None:
    frame = pl.DataFrame(
        {
            "enum": pl.Series(["y", "x", None, "y"], dtype=pl.Enum(["x", "y"])),
            "float": [0.5, math.nan, -1e300, 0.5],
            "day": [date(2026, 1, 2), None, date(2026, 1, 1), date(2026, 1, 2)],
        }
    )
    for columns in (*([name] for name in frame.columns), frame.columns):
        some = frame.select(columns)
        coded = distinct(some)
        assert some[coded.rows][coded.codes].equals(some)
        assert len(coded.rows) == 3

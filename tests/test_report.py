import json
import math
import re
from html.parser import HTMLParser

import polars as pl
import pytest

from logitbank.analysis.fairness import fairness
from logitbank.analysis.fairness_summary import CAUTIONS, INTERVALS, _change, fairness_summary
from logitbank.analysis.figures import figures
from logitbank.analysis.report import write_report, write_tables
from logitbank.analysis.result_tables import json_rows
from logitbank.errors import UsageError
from tests.fairness_cases import random_frame

HOSTILE = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


class Page(HTMLParser):
    """Tags, attributes, ids and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def result_of(**options):
    frame = random_frame(**{"checkpoints": 6, "sentences": 20, **options})
    return fairness(frame, bootstrap=100)


def page_of(path, **options) -> tuple[str, Page]:
    empty = {"title": "Report", "summary": [], "figures": {}, "tables": {}}
    write_report(path, **(empty | options))
    html = path.read_text()
    return html, Page(html)


def test_page_holds_figures_tables_and_sentences_and_asks_for_nothing(tmp_path):
    result = result_of(skew_from=3)
    html, page = page_of(
        tmp_path / "r.html",
        summary=fairness_summary(result),
        figures=figures(result),
        tables=result.tables(),
        provenance=pl.DataFrame({"engine": ["fake"]}),
    )
    assert page.tags.count("svg") == 5
    assert page.tags.count("table") == 10
    assert "fake" in page.text
    assert not {"script", "link", "iframe", "img", "object"} & set(page.tags)
    assert "://" not in html
    assert [v for k, v in page.attributes if k in ("src", "href") and not v.startswith("#")] == []


def test_ids_are_unique_and_every_reference_is_met(tmp_path):
    html, page = page_of(tmp_path / "r.html", figures=figures(result_of()))
    ids = [value for key, value in page.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    links = {value[1:] for key, value in page.attributes if key == "href" and value}
    assert links | set(re.findall(r"url\(#([^)]+)\)", html)) <= set(ids)


def test_hostile_text_stays_text(tmp_path):
    result = result_of(checkpoints=2, model=HOSTILE)
    _, page = page_of(
        tmp_path / "r.html",
        title=HOSTILE,
        summary=[HOSTILE],
        figures={HOSTILE: figures(result)["gap"]},
        tables={HOSTILE: pl.DataFrame({HOSTILE: [HOSTILE]}), "gap": result.gap},
        provenance=pl.DataFrame({"host": [HOSTILE]}),
    )
    assert not {"script", "img"} & set(page.tags)
    assert not [key for key, _ in page.attributes if key.startswith("on")]
    assert page.text.count(HOSTILE) >= 8


def test_figures_take_the_ink_of_the_page(tmp_path):
    html, _ = page_of(tmp_path / "r.html", figures=figures(result_of(checkpoints=2)))
    drawing = html[html.index("<svg") :]
    assert "currentColor" in drawing
    assert "#1f2329" not in drawing
    assert "prefers-color-scheme: dark" in html


def test_long_tables_are_cut_with_a_note_and_numbers_rounded(tmp_path):
    table = pl.DataFrame({"x": [1 / 3, 1e-9, float("nan"), None], "n": [1234567, 2, 3, 4]})
    _, page = page_of(tmp_path / "r.html", tables={"t": table}, max_rows=3)
    assert "The first 3 of 4 rows, rounded." in page.text
    for cell in ("0.3333", "1.00e-09", "NaN", "1234567"):
        assert cell in page.text
    assert "–" in page_of(tmp_path / "s.html", tables={"t": table})[1].text


def test_the_same_figures_give_the_same_page(tmp_path):
    result = result_of(checkpoints=2)
    pages = [page_of(tmp_path / f"{i}.html", figures=figures(result))[0] for i in range(2)]
    assert pages[0] == pages[1]


def test_a_failed_write_leaves_the_old_page_and_nothing_else(tmp_path, monkeypatch):
    page_of(tmp_path / "r.html", title="old")
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            write_report(tmp_path / "r.html", title="new", summary=[], figures={}, tables={})
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]
    assert "old" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("format", ["csv", "parquet", "json"])
def test_tables_are_written_at_full_precision(tmp_path, format):
    result = result_of(checkpoints=2)
    paths = write_tables(result, tmp_path / "out", format)
    assert [path.stem for path in paths] == list(result.tables())
    path = tmp_path / "out" / f"gap.{format}"
    if format == "json":
        values = [row["delta_nats"] for row in json.loads(path.read_text())]
    else:
        read = pl.read_csv if format == "csv" else pl.read_parquet
        values = read(path)["delta_nats"].to_list()
    assert values == result.gap["delta_nats"].to_list()


def test_json_has_null_for_nan(tmp_path):
    result = result_of(checkpoints=1, orders=1)
    assert math.isnan(result.gap["sd_nats"][0])
    write_tables(result, tmp_path, "json")
    assert json.loads((tmp_path / "gap.json").read_text())[0]["sd_nats"] is None


def test_json_tells_infinities_from_nan():
    table = pl.DataFrame({"x": [math.inf, -math.inf, math.nan, 0.1, None], "n": [1, 2, 3, 4, 5]})
    rows = [{"x": x, "n": n + 1} for n, x in enumerate(["Infinity", "-Infinity", None, 0.1, None])]
    assert json_rows(table) == rows


def test_unknown_format_is_refused(tmp_path):
    with pytest.raises(UsageError, match="format 'xlsx' is unknown; use one of csv, parquet, jso"):
        write_tables(result_of(checkpoints=1), tmp_path, "xlsx")


def test_summary_gives_gap_interval_onset_and_cautions():
    result = result_of(skew_from=3)
    summary = fairness_summary(result)
    gap = result.gap.row(-1, named=True)
    assert (
        f"At step 16 the gap is Δ = {gap['delta_scaled']:+.3f} (95 % interval "
        f"{gap['low_scaled']:+.3f} to {gap['high_scaled']:+.3f}), worse for female answers."
    ) in summary
    earlier = result.gap.filter(pl.col("step") < 4)
    apart = sum(not low <= 0 <= high for low, high in earlier["low_scaled", "high_scaled"].rows())
    lasting = (
        "The gap's interval excludes zero at every checkpoint from step 4 to the last, 16; before "
        f"that, at {apart} of 3."
    )
    assert lasting in summary
    assert summary[-len(CAUTIONS) - 1 :] == [*CAUTIONS, INTERVALS]


def test_summary_says_that_there_is_no_lasting_gap():
    assert "At the last step, 16, the gap's interval contains zero." in fairness_summary(
        result_of()
    )


def test_summary_counts_what_weakens_the_numbers():
    frame = random_frame(sentences=4, checkpoints=2, steps=[1, 2])
    hole = (pl.col("step") == 2) & (pl.col("prompt_id") == "prompt-0")
    weak = frame.filter(~hole).with_columns(
        exact=pl.col("step") == 1, ties=(pl.col("step") == 1).cast(pl.Int32)
    )
    text = "\n".join(fairness_summary(fairness(weak, bootstrap=20)))
    assert "3 scores of a prompt under an order seed are missing at 1 checkpoint" in text
    assert "48 times (checkpoint, prompt and order seed) the right answer shared its logit" in text
    assert "45 ranks were counted among rounded scores: the exact rank is there or up" in text


def test_summary_without_intervals_speaks_of_none():
    frame = random_frame(sentences=6, checkpoints=3)
    text = "\n".join(fairness_summary(fairness(frame, bootstrap=0)))
    assert "nan" not in text
    assert "interval" not in text
    assert "%" not in text


def test_summary_gives_no_direction_where_the_interval_holds_zero():
    result = fairness(random_frame(sentences=6, checkpoints=1), bootstrap=200)
    (gap,) = result.gap.iter_rows(named=True)
    assert gap["low_scaled"] < 0 < gap["high_scaled"]
    (sentence,) = (s for s in fairness_summary(result) if "the gap is" in s)
    assert "worse" not in sentence


def test_summary_says_that_the_gap_turned():
    columns = ("gap_scaled", "delta_scaled", "low_scaled", "high_scaled", "gap_nats")
    values = [(0.5, 0.5, 0.4, 0.6, 0.2), (0.25, -0.25, -0.3, -0.2, 0.1)]
    gap = pl.DataFrame(values, schema=columns, orient="row").with_columns(
        model=pl.lit("m"), run=pl.lit("main"), step=pl.Series([1, 2])
    )
    assert _change(gap) == (
        "From step 1 to step 2 the gap became 50.0 % smaller: a fairness change of +50.0 %. "
        "It is the other way round."
    )


def test_summary_names_the_models_where_there_are_two():
    frames = [random_frame(checkpoints=1, sentences=4, model=m, seed=1) for m in ("one", "two")]
    summary = fairness_summary(fairness(pl.concat(frames), bootstrap=20))
    assert any(line.startswith("two: ") for line in summary)
    assert any("one and two differ in JSD-P of the male option at 0 of 1" in s for s in summary)


def test_summary_of_one_gender_says_that_there_is_no_gap():
    frame = random_frame(checkpoints=1, sentences=3).filter(pl.col("answer") != "male")
    summary = fairness_summary(fairness(frame, bootstrap=20))
    assert (
        "There is no gap to give: no prompt has a male answer, or none has a female one." in summary
    )

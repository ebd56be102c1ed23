"""StereoSet's gold files and prediction files: read, and checked against each other.

The layouts are those of the original release (Nadeem et al. 2021): a gold file has `data` with
`intrasentence` and `intersentence` examples; a prediction file has under the same names one
`{"id", "score"}` per candidate sentence.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from logitbank.analysis.frames.candidates import (
    CANDIDATES,
    CAUSAL,
    INTER,
    INTRA,
    LABELS,
    PLAIN,
    some,
)
from logitbank.analysis.frames.input_files import named_file, read_json_object
from logitbank.errors import UsageError

FILE_TASKS = (INTRA, INTER, CAUSAL)
"""Lists of a prediction file. The last, for the causal extension, is not in StereoSet."""
GOLD = pl.Schema(
    {
        "task": pl.String,
        "example": pl.String,
        "candidate": pl.String,
        "term": pl.String,
        "domain": pl.String,
        "label": pl.String,
    }
)


def file_candidates(predictions: Sequence[str], gold: str | None) -> list[pl.DataFrame]:
    """Candidates of prediction files, each a path or NAME=PATH; `gold` is PATH or LANGUAGE=PATH.

    Raises
    ------
    UsageError
        No gold file, or one without predictions; two files of one name; the errors of `read_gold`
        and `read_predictions`.
    """
    if (gold is None) != (not predictions):
        raise UsageError("--predictions and --gold go together. Use StereoSet's dev.json as gold.")
    if gold is None:
        return []
    files = [(name or path.stem, path) for name, path in map(named_file, predictions)]
    names = [name for name, _ in files]
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise UsageError(
            f"Two prediction files have the name {duplicates[0]!r}. Use --predictions NAME=PATH."
        )
    language, path = named_file(str(gold))
    labels = read_gold(path)
    return [
        read_predictions(predicted, labels, model=name, language=language)
        for name, predicted in files
    ]


def read_gold(path: Path) -> pl.DataFrame:
    """Candidates of a gold file with the columns of `GOLD`, in the order of the file.

    The term is `target_english` if present, because inflection splits the German terms.

    Raises
    ------
    UsageError
        The file does not exist or has another layout; labels other than the three, an example
        without one of each, or a candidate that occurs twice.
    """
    data = read_json_object(path, "gold file").get("data")
    try:
        rows = [
            (task, example["id"], sentence["id"],
             example.get("target_english") or example["target"],
             example["bias_type"], sentence["gold_label"])
            for task in (INTRA, INTER)
            for example in data.get(task, [])  # type: ignore[union-attr]
            for sentence in example["sentences"]
        ]  # fmt: skip
        if not all(isinstance(text, str) for row in rows for text in row):
            raise TypeError("an id, a term, a bias_type or a gold_label is not text")
    except (AttributeError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is not a StereoSet gold file ({type(error).__name__}: {error}). Use "
            "StereoSet's dev.json or a file in its layout."
        ) from error
    gold = pl.DataFrame(rows, schema=GOLD, orient="row")
    if gold.is_empty():
        raise UsageError(f"{path} has no StereoSet examples.")
    label, example = pl.col("label"), ("task", "example")
    number = (pl.len().over(example), label.n_unique().over(example))
    blank = pl.any_horizontal(pl.col(pl.String) == "")
    for invalid, problem in (
        (blank, "candidates with an empty text"),
        (~label.is_in(LABELS), f"candidates with a gold_label other than {', '.join(LABELS)}"),
        (pl.col("candidate").is_duplicated(), "candidates that occur twice"),
        (pl.any_horizontal(n != len(LABELS) for n in number), "candidates of incomplete examples"),
    ):
        names = gold.filter(invalid)["candidate"].unique(maintain_order=True)
        _refuse(str(path), problem, names.to_list())
    return gold


def read_predictions(
    path: Path, gold: pl.DataFrame, *, model: str | None = None, language: str = ""
) -> pl.DataFrame:
    """Candidates of a prediction file, as `stereoset_metric` accepts them.

    A list that is absent or empty is a task that was skipped; the others have every candidate that
    the gold file has.

    Parameters
    ----------
    path
        The file.
    gold
        From `read_gold`.
    model
        Name; by default that of the file, without its suffix.
    language
        Language of the sentences, for the results.

    Raises
    ------
    UsageError
        The file does not exist or has another layout; ids that are missing, duplicated or unknown;
        scores that are not finite. The message counts them and names the first.
    """
    content = read_json_object(path, "prediction file")
    lists = {key: value for key, value in content.items() if isinstance(value, list) and value}
    invalid = [task for task in FILE_TASKS if not isinstance(content.get(task, []), list)]
    if invalid or not lists or not set(lists) <= set(FILE_TASKS):
        raise UsageError(
            f"{path} is not a StereoSet prediction file. It needs lists {INTRA} and {INTER} of "
            '{"id", "score"}.'
        )
    parts = [
        _scored(lists[task], gold, task, f"{path}, {task}") for task in FILE_TASKS if task in lists
    ]
    scores = pl.concat(parts).with_columns(
        model=pl.lit(model or path.stem), run=pl.lit("main"), step=None,
        language=pl.lit(language), condition=pl.lit(PLAIN), score=pl.lit("reference"),
        score_kind=pl.lit("file"),
    )  # fmt: skip
    return scores.select(CANDIDATES.names()).cast(CANDIDATES)


def _scored(entries: Sequence[Any], gold: pl.DataFrame, task: str, source: str) -> pl.DataFrame:
    """The gold candidates of a task with their scores in a column value."""
    try:
        pairs = [(entry["id"], entry["score"]) for entry in entries]
    except (KeyError, TypeError) as error:
        raise UsageError(f'{source}: an entry has no "id" and "score".') from error
    invalid = [str(name) for name, s in pairs if not (isinstance(name, str) and _finite(s))]
    _refuse(source, "ids that are not text, or scores that are not finite numbers", invalid)
    scores = {name: float(score) for name, score in pairs}
    if len(scores) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        _refuse(source, "duplicate ids", [name for name, n in counts.items() if n > 1])
    candidates = gold.filter(pl.col("task") == (INTER if task == CAUSAL else task))
    expected = candidates["candidate"].to_list()
    known = set(expected)
    unknown = [name for name in scores if name not in known]
    _refuse(source, "ids that are not in the gold file", unknown)
    _refuse(
        source, "missing ids of the gold file", [name for name in expected if name not in scores]
    )
    values = pl.Series([scores[name] for name in expected], dtype=pl.Float64)
    return candidates.with_columns(task=pl.lit(task), value=values)


def _refuse(source: str, problem: str, names: Sequence[str]) -> None:
    if names:
        raise UsageError(f"{source} has {problem}: {some(names)}.")


def _finite(score: object) -> bool:
    number = isinstance(score, int | float) and not isinstance(score, bool)
    return number and -1e308 < score < 1e308  # type: ignore[operator]

"""StereoSet's gold files and prediction files: read, checked against each other, and written.

The layouts are those of the original release (Nadeem et al. 2021): a gold file has `data` with
`intrasentence` and `intersentence` examples; a prediction file has under the same names one
`{"id", "score"}` per candidate sentence.
"""

import json
import math
import re
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl

from logitbank.analysis.frames.candidates import (
    CAUSAL,
    INTER,
    INTRA,
    LABELS,
    PLAIN,
    check_candidates,
    some,
)
from logitbank.analysis.frames.json_files import json_object
from logitbank.analysis.results.files import replace_file
from logitbank.errors import UsageError
from logitbank.store.format.schema import folder_name

FILE_TASKS = (INTRA, INTER, CAUSAL)
"""Lists of a prediction file. The last is ours and has the causal extension."""
GOLD = pl.Schema(
    {
        "task": pl.String,
        "example": pl.String,
        "candidate": pl.String,
        "term": pl.String,
        "domain": pl.String,
        "label": pl.String,
        "position": pl.Int64,
    }
)


def file_candidates(predictions: Sequence[str], gold: Path | None) -> list[pl.DataFrame]:
    """Candidates of prediction files, each given as a path or NAME=PATH.

    Raises
    ------
    UsageError
        No gold file, or one without predictions; two files of one name; what `read_gold` and
        `read_predictions` refuse.
    """
    if gold is None:
        if predictions:
            raise UsageError(
                "predictions are scored against a gold file; give it with --gold, such as "
                "StereoSet's dev.json"
            )
        return []
    if not predictions:
        raise UsageError(f"the gold file {gold} is for prediction files; give --predictions")
    named = [_named(text) for text in predictions]
    names = [name for name, _ in named]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two prediction files are called {twice[0]!r}; name them NAME=PATH")
    labels = read_gold(gold)
    return [read_predictions(path, labels, model=name) for name, path in named]


def _named(text: str) -> tuple[str, Path]:
    """
    >>> _named("bert=out/p.json")[0], _named("out/p.json")[0]
    ('bert', 'p')
    """
    name, equals, rest = text.partition("=")
    if equals and name and rest and not Path(text).exists():
        return name, Path(rest)
    return model_of(Path(text)), Path(text)


def read_gold(path: Path) -> pl.DataFrame:
    """Candidates of a gold file with the columns of `GOLD`, in the order of the file.

    The term is `target_english` where there is one, since inflection splits the German terms.

    Raises
    ------
    UsageError
        Not there, not JSON, of another shape; labels that are not the three, an example without
        one of each, or a candidate that is there twice.
    """
    data = json_object(path, "gold file").get("data")
    lists = data if isinstance(data, dict) else {}
    lists = {task: lists[task] for task in (INTRA, INTER) if task in lists}
    if not any(lists.values()) or not all(isinstance(entries, list) for entries in lists.values()):
        raise UsageError(
            f"{path} is no StereoSet gold file: it has no lists data.{INTRA} and data.{INTER} of "
            "examples; give StereoSet's dev.json or one in its layout"
        )
    rows = [row for task, examples in lists.items() for row in _rows(examples, task, path)]
    gold = pl.DataFrame(rows, schema=GOLD, orient="row")
    _check_gold(gold, path)
    return gold


def _rows(examples: Sequence[Any], task: str, path: Path) -> list[tuple[Any, ...]]:
    rows, invalid = [], []
    for position, example in enumerate(examples):
        try:
            term = example.get("target_english") or example["target"]
            candidates = [
                (
                    task,
                    example["id"],
                    s["id"],
                    term,
                    example["bias_type"],
                    s["gold_label"],
                    position,
                )
                for s in example["sentences"]
            ]
        except (AttributeError, KeyError, TypeError):
            candidates = []
        if candidates and all(
            isinstance(text, str) and text for row in candidates for text in row[1:-1]
        ):
            rows += candidates
        else:
            invalid.append(_entry_name(example, position + 1))
    if invalid:
        raise UsageError(
            f"{path}, {task}: entries that are no example: {some(invalid)}; one has the texts id, "
            "target and bias_type, and sentences, each of them with the texts id and gold_label"
        )
    return rows


def _entry_name(entry: object, at: int) -> str:
    """An entry by its id, or by its place where that is no text."""
    name = entry.get("id") if isinstance(entry, dict) else None
    return name if isinstance(name, str) and name else f"number {at}"


def _check_gold(gold: pl.DataFrame, path: Path) -> None:
    invalid = gold.filter(~pl.col("label").is_in(LABELS))
    if len(invalid):
        raise UsageError(
            f"{path}: candidates with another gold_label than {', '.join(LABELS)}: "
            f"{some(invalid['candidate'])}; the first is {invalid['label'][0]!r}"
        )
    twice = gold.filter(pl.col("candidate").is_duplicated())
    if len(twice):
        names = twice["candidate"].unique(maintain_order=True)
        raise UsageError(f"{path}: candidates that are there twice: {some(names)}; an id names one")
    whole = gold.group_by("task", "example", maintain_order=True).agg(
        fine=(pl.len() == len(LABELS)) & (pl.col("label").n_unique() == len(LABELS))
    )
    bare = whole.filter(~pl.col("fine"))
    if len(bare):
        raise UsageError(
            f"{path}: examples without a candidate of each label: {some(bare['example'])}; each "
            f"has one {', one '.join(LABELS)}"
        )


def read_predictions(path: Path, gold: pl.DataFrame, *, model: str | None = None) -> pl.DataFrame:
    """Candidates of a prediction file, as `stereoset_metric` takes them.

    A list that is absent or empty is a task that was skipped; the others have every candidate that
    the gold file has.

    Parameters
    ----------
    path
        The file.
    gold
        From `read_gold`.
    model
        Name; that of the file, without its ending, if None.

    Raises
    ------
    UsageError
        Not there, not JSON, of another shape; ids that are missing, doubled or unknown; scores that
        are no finite numbers. The message counts them and names the first.
    """
    content = json_object(path, "prediction file")
    if invalid := [task for task in FILE_TASKS if not isinstance(content.get(task, []), list)]:
        raise UsageError(
            f'{path} is no StereoSet prediction file: {invalid[0]} is no list of {{"id", "score"}}'
        )
    lists = {key: value for key, value in content.items() if isinstance(value, list) and value}
    unknown = sorted(set(lists) - set(FILE_TASKS))
    if unknown or not lists:
        what = f"a list {unknown[0]!r}" if unknown else "nothing"
        raise UsageError(
            f"{path} is no StereoSet prediction file: it has {what} where {INTRA} and {INTER} "
            'belong, lists of {"id", "score"}'
        )
    parts = [
        _task(lists[task], gold, task, f"{path}, {task}") for task in FILE_TASKS if task in lists
    ]
    return check_candidates(
        pl.concat(parts).with_columns(
            model=pl.lit(model or model_of(path)),
            run=pl.lit("main"),
            run_seed=pl.lit(None, pl.Int64),
            step=pl.lit(None, pl.Int64),
            language=pl.lit(""),
            condition=pl.lit(PLAIN),
            score=pl.lit("reference"),
            score_kind=pl.lit("file"),
        )
    )


def _task(entries: Sequence[Any], gold: pl.DataFrame, task: str, where: str) -> pl.DataFrame:
    """The gold candidates of a task with their scores in a column value."""
    scores = _scores(entries, where)
    of_task = gold.filter(pl.col("task") == (INTER if task == CAUSAL else task))
    known = of_task["candidate"].to_list()
    of_gold = set(known)
    check = "check that the gold file is the one that was scored"
    if unknown := [name for name in scores if name not in of_gold]:
        raise UsageError(f"{where}: ids that are not in the gold file: {some(unknown)}; {check}")
    if missing := [name for name in known if name not in scores]:
        raise UsageError(
            f"{where}: ids of the gold file that are missing: {some(missing)}; {check}"
        )
    return of_task.with_columns(
        task=pl.lit(task), value=pl.Series([scores[name] for name in known], dtype=pl.Float64)
    )


def _scores(entries: Sequence[Any], where: str) -> dict[str, float]:
    if invalid := [_entry_name(e, at) for at, e in enumerate(entries, 1) if not _is_entry(e)]:
        raise UsageError(
            f'{where}: entries that are no {{"id", "score"}}: {some(invalid)}; every candidate has '
            "both"
        )
    pairs = [(entry["id"], entry["score"]) for entry in entries]
    if worse := [(str(name), score) for name, score in pairs if not _is_number(score)]:
        raise UsageError(
            f"{where}: ids whose scores are no finite numbers: {some([n for n, _ in worse])}; the "
            f"first is {reprlib.repr(worse[0][1])}"
        )
    if nameless := [str(name) for name, _ in pairs if not isinstance(name, str)]:
        raise UsageError(f"{where}: ids that are no text: {some(nameless)}; the gold file has them")
    scores = {name: float(score) for name, score in pairs}
    if len(scores) < len(pairs):
        seen: set[str] = set()
        twice = dict.fromkeys(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise UsageError(
            f"{where}: ids that are there twice: {some(list(twice))}; each has one score"
        )
    return scores


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and "id" in entry and "score" in entry


def _is_number(score: object) -> bool:
    if isinstance(score, bool) or not isinstance(score, int | float):
        return False
    try:
        return math.isfinite(score)
    except OverflowError:  # an integer of 400 digits
        return False


def write_predictions(candidates: pl.DataFrame, path: Path) -> list[Path]:
    """Write scores as prediction files, which read back as the same numbers; returns the paths.

    A `path` that ends in .json is one file, and needs candidates of one checkpoint, condition,
    language and rule; another is a folder with a file for each, called so that StereoSet's own
    evaluation tells them apart. Lists are in the order of the data.

    Raises
    ------
    UsageError
        Several sets of scores for one file, scores that are missing, or scores that JSON lacks.
    """
    sets = candidates.partition_by(
        "model", "run", "step", "language", "condition", "score", maintain_order=True
    )
    if path.suffix.lower() == ".json" and len(sets) > 1:
        named = ", ".join(_name(rows) for rows in sets[:3]) + (", …" if len(sets) > 3 else "")
        raise UsageError(
            f"{path} would hold {len(sets)} sets of scores ({named}); choose one with --steps and "
            "--model, or name a folder"
        )
    contents = {}
    for rows in sets:
        file = path if path.suffix.lower() == ".json" else path / _file_name(_name(rows))
        contents[file] = _content(rows)
    for file, content in contents.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, content)
    return list(contents)


def _file_name(name: str) -> str:
    """StereoSet's own evaluation calls a model what stands between two underscores.

    >>> _file_name("my_model-step8"), model_of(Path(_file_name("my_model-step8")))
    ('predictions_my%5Fmodel-step8_logitbank.json', 'my_model-step8')
    """
    return f"predictions_{folder_name(name).replace('_', '%5F')}_logitbank.json"


def model_of(path: Path) -> str:
    """The model that a prediction file is of by its name."""
    ours = re.fullmatch(r"predictions_([^_]+)_logitbank", path.stem)
    return unquote(ours[1]) if ours else path.stem


def _name(rows: pl.DataFrame) -> str:
    head = rows.row(0, named=True)
    step = "release" if head["step"] is None else f"step{head['step']}"
    parts = [head["model"], head["run"], step, head["language"], head["condition"], head["score"]]
    usual = ("", "main", PLAIN, "reference")
    return "-".join([parts[0], *(part for part in parts[1:] if part not in usual)])


def _content(rows: pl.DataFrame) -> bytes:
    lost = rows.filter(pl.col("value").is_null() | ~pl.col("value").is_finite())
    if len(lost):
        raise UsageError(
            f"{_name(rows)}: candidates without a finite score: {some(lost['candidate'].sort())}; "
            "no prediction file can hold them"
        )
    tasks = rows.sort("position", "example", "candidate").partition_by("task", as_dict=True)
    content = {
        task: [
            {"id": name, "score": score}
            for name, score in tasks[(task,)].select("candidate", "value").iter_rows()
        ]
        for task in FILE_TASKS
        if (task,) in tasks
    }
    return json.dumps(content, indent=2).encode()

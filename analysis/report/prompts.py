"""The prompt view of a page: which prompts it holds, and their scores through training.

A page cannot hold every score of a large bank. It holds the prompts that move most, and those that
differ most between any two of a few checkpoints, with their scores at all checkpoints.
"""

import base64
from collections.abc import Iterator, Sequence
from itertools import chain, combinations, zip_longest
from typing import Any

import numpy as np
import polars as pl

from logitbank.analysis.drawing.paper import option_colours
from logitbank.analysis.drawing.places import StepPlaces
from logitbank.analysis.prompts.scores import PromptScores, each_series, prompt_scores
from logitbank.analysis.prompts.view import Moving, differences
from logitbank.analysis.report.said import Asked, said
from logitbank.store import Bank
from logitbank.store.steps import in_order

MOVED, DIFFERENT, ANCHORS = 20, 10, 8
"""Prompts of a list, of a pair of checkpoints, and checkpoints to choose pairs from."""
SERIES = 12
"""Models and runs of a prompt set; a page says how many are left out."""
FEWEST = 20
Key = tuple[str, int | None]
Json = dict[str, Any]


def prompt_data(
    bank: Bank, prompts: str, *, models: Sequence[str] | None = None, values: int = 350_000
) -> Json:
    """What the prompt view of a page needs of a prompt set, for JSON.

    Parameters
    ----------
    values
        Most scores to hold, unless so few prompts were left that the view would be of no use.

    Returns
    -------
    name, measure, total (prompts × orders), prompts (id, order, text, answer, options), axis
    (places of steps, and ticks), colours of options, and series
    (name, steps, anchors, moved, pairs, left_out, logprob: float32, checkpoint × option of the
    prompts held, base64); `said`, what the models would say at those that move most, at the anchors
    of each series, or None.

    Raises
    ------
    BankError
        The bank has no such prompts, or no deposit of them.
    """
    lists: list[_Lists] = []
    left_out = 0
    for parts in each_series(prompt_scores(bank, prompts, models=models, few=True)):
        if len(lists) < SERIES:
            lists.append(_Lists(bank, prompts, Moving.of(parts)))
        else:
            left_out += 1
    keys = _chosen(lists, values)
    if not keys:  # no option is scored
        return {
            "name": prompts, "measure": "share", "total": max(list_.total for list_ in lists),
            "left_out": left_out, "prompts": [], "series": [], "axis": {}, "colours": {},
            "said": None,
        }  # fmt: skip
    ids = {name for name, _ in keys}
    again = prompt_scores(bank, prompts, models=models, ids=ids)
    by_series = {(scores.model, scores.run): scores for scores in again}
    lists = [
        list_ for list_ in lists if list_.series in by_series
    ]  # others were asked none of these
    shown = _prompts([by_series[list_.series] for list_ in lists], keys)
    places = {key: at for at, key in enumerate(keys)}
    steps = in_order(chain.from_iterable(one.steps for one in by_series.values()))
    step_places = StepPlaces(steps)
    options = [one["option"] for prompt in shown for one in prompt["options"]]
    several_runs = len({list_.series[1] for list_ in lists}) > 1
    return {
        "name": prompts,
        "measure": lists[0].measure,
        "total": max(list_.total for list_ in lists),
        "left_out": left_out,
        "prompts": shown,
        "axis": {
            "places": [[step, round(step_places.place(step), 5)] for step in steps],
            "ticks": step_places.ticks(step_places.scale),
        },
        "colours": option_colours(options),
        "said": said(
            bank,
            prompts,
            [Asked(*list_.series, list_.anchors) for list_ in lists],
            [(places[key], key) for key in _moving(lists) if key in places],
        ),
        "series": [
            {
                "name": " ".join(list_.series) if several_runs else list_.series[0],
                **list_.placed(places),
                "steps": list(by_series[list_.series].steps),
                "logprob": _logprobs(by_series[list_.series], keys, shown),
            }
            for list_ in lists
        ],
    }


class _Lists:
    """The prompts of one model and run that move and differ most."""

    def __init__(self, bank: Bank, prompts: str, moving: Moving) -> None:
        scores, c = moving.scores, len(moving.steps)
        self.series = scores.model, scores.run
        self.measure = scores.measure
        self.total = len(scores.prompts)
        self.values_each = c * len(scores.options) / max(1, self.total)
        self.moved = [
            (_key(row), row["option"], row["movement"])
            for row in moving.table().head(10 * MOVED).iter_rows(named=True)
        ]
        at = np.unique(np.linspace(0, c - 1, min(c, ANCHORS)).round().astype(int))
        steps = {moving.steps[index] for index in at}
        model, run = self.series
        # Read again, as which they are is known once all have been seen.
        (few,) = prompt_scores(bank, prompts, models=[model], runs=[run], steps=steps)
        self.anchors = few.steps
        self.pairs = {
            (a, b): [
                (_key(row), row["option"], row["before"], row["after"])
                for row in differences(few, few.steps[a], few.steps[b])
                .head(DIFFERENT)
                .iter_rows(named=True)
            ]
            for a, b in combinations(range(len(few.steps)), 2)
        }

    def wanted(self) -> Iterator[list[Key]]:
        """Lists of keys, what is shown first in front."""
        yield [key for key, *_ in self.moved[:MOVED]]
        for a, b in sorted(self.pairs, key=lambda pair: pair[0] - pair[1]):
            yield [key for key, *_ in self.pairs[a, b]]
        yield [key for key, *_ in self.moved[MOVED:]]

    def placed(self, places: dict[Key, int]) -> Json:
        """The lists by index into the prompts that the page holds."""
        moved = [
            [places[key], option, _short(size)]
            for key, option, size in self.moved[:MOVED]
            if key in places
        ]
        pairs = [
            {
                "from": a,
                "to": b,
                "top": [
                    [places[key], option, _short(before), _short(after)]
                    for key, option, before, after in rows
                    if key in places
                ],
            }
            for (a, b), rows in self.pairs.items()
        ]
        return {"anchors": list(self.anchors), "moved": moved, "pairs": pairs}


def _chosen(lists: Sequence[_Lists], values: int) -> list[Key]:
    """Prompts for the page: the heads of all lists first, until there are as many as it holds."""
    most = max(FEWEST, int(values / max(1.0, sum(list_.values_each for list_ in lists))))
    heads = chain.from_iterable(
        zip_longest(*chain.from_iterable(list_.wanted() for list_ in lists))
    )
    return list(dict.fromkeys(key for key in heads if key is not None))[:most]


def _moving(lists: Sequence[_Lists]) -> list[Key]:
    """The prompts that move most, those of all models and runs in turn."""
    heads = zip_longest(*([key for key, *_ in list_.moved[:MOVED]] for list_ in lists))
    return list(dict.fromkeys(key for key in chain.from_iterable(heads) if key is not None))


def _prompts(of_series: Sequence[PromptScores], keys: Sequence[Key]) -> list[Json]:
    """Text and options of each prompt, from the first model that was asked it."""
    prompts: dict[Key, Json] = {}
    for scores in of_series:
        options = scores.options.partition_by("prompt", as_dict=True, include_key=False)
        for at, row in enumerate(scores.prompts.iter_rows(named=True)):
            if _key(row) in prompts:
                continue
            prompts[_key(row)] = {
                "id": row["prompt_id"],
                "order": row["order_seed"],
                "text": row["text"],
                "answer": row["answer"],
                "options": [
                    {
                        "option": option["option"],
                        "continuation": option["continuation"],
                        "answer": bool(option["is_answer"]),
                    }
                    for option in options[(at,)].iter_rows(named=True)
                ],
            }
    return [prompts[key] for key in keys]


def _logprobs(scores: PromptScores, keys: Sequence[Key], shown: Sequence[Json]) -> Json:
    """Scores of the prompts held, in their order; NaN where a model was not asked."""
    first: dict[Key, dict[str, int]] = {}
    about = list(scores.prompts.select("prompt_id", "order_seed").iter_rows(named=True))
    for column, (prompt, option) in enumerate(scores.options.select("prompt", "option").rows()):
        first.setdefault(_key(about[prompt]), {})[option] = column
    missing = int(scores.logprob.shape[1])
    columns = [
        first.get(key, {}).get(option["option"], missing)
        for key, prompt in zip(keys, shown, strict=True)
        for option in prompt["options"]
    ]
    padded = np.column_stack([scores.logprob, np.full(len(scores.steps), np.nan)])
    return array(padded[:, np.array(columns, dtype=np.intp)])


def array(values: np.ndarray) -> Json:
    """Float32 in base64, as the page's script reads it.

    >>> array(np.array([1.0]))
    {'dtype': 'f4', 'bdata': 'AACAPw=='}
    """
    content = np.ascontiguousarray(values, dtype="<f4").tobytes()
    return {"dtype": "f4", "bdata": base64.b64encode(content).decode()}


def _key(row: dict[str, Any]) -> Key:
    return row["prompt_id"], row["order_seed"]


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def prompt_table(bank: Bank, names: Sequence[str]) -> pl.DataFrame:
    """One row per prompt set: prompts, option orders, options, and the set's own columns."""
    rows = []
    for name in names:
        table = bank.prompts(name)
        own = table.collect_schema().names()
        counts = table.select(
            prompts=pl.col("prompt_id").n_unique(),
            orders=pl.col("order_seed").n_unique(),
            options=pl.col("option").n_unique(),
        ).collect()
        rows.append((name, *counts.row(0), len(own)))
    columns = ("prompt set", "prompts", "option orders", "different options", "columns")
    return pl.DataFrame(rows, schema=columns, orient="row")

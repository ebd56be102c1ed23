"""The prompt view of a page: which prompts it holds, and their scores through training.

A page cannot hold every score of a large bank. It holds the prompts that change most, with their
scores at all checkpoints. Of prompts that are variants of one sentence, the list has one.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.charts.theme import color_map
from logitbank.analysis.frames.banks import check_same_prompts
from logitbank.analysis.frames.dense import PROMPT_ORDER
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.prompts.scores import (
    Measure,
    PromptScores,
    prompt_scores,
    read_options,
)
from logitbank.analysis.prompts.view import moves_of_runs
from logitbank.analysis.report.origin import bank_name
from logitbank.store import Bank
from logitbank.store.steps import in_order

CHANGED = 20
"""Prompts of a list."""
SERIES = 12
"""Models and runs of a prompt set, those whose prompts change most; a page counts the others."""
FEWEST = 20
FEWEST_SENTENCES = 10
"""Sentences of a prompt set below which the list may have several variants of one."""
VARIANTS = 200
"""Prompts that are looked through for each one of a list; WinoBias has 50 to 60 of a sentence."""
SENTENCE = ("sentence_id", "example", "pair", "instance")
"""Columns that are the same in all variants of a sentence."""
Key = tuple[str, int | None]
"""Id and order seed of a prompt."""
Json = dict[str, Any]


class Changes(NamedTuple):
    """The prompts of one model and run that change most."""

    bank: Bank
    model: str
    run: str
    measure: Measure
    total: int
    values_each: float
    """Scores of a prompt, on average."""
    grouped: bool
    """Whether `listed` has one prompt of each sentence."""
    listed: Sequence[tuple[Key, str, float]]
    """Prompts, the option that changes most, and its change; the largest change first."""
    further: Sequence[Key]
    """The prompts with the largest changes, all variants of a sentence among them."""

    def load_scores(self, prompts: str, ids: set[str]) -> PromptScores | None:
        """The scores of these prompts; None if the model has none of them."""
        found = prompt_scores(self.bank, prompts, models=self.model, runs=self.run, ids=ids)
        return next(found, None)


def prompt_data(
    banks: Sequence[Bank],
    prompts: str,
    *,
    models: Sequence[str] | None = None,
    values: int = 200_000,
) -> Json:
    """Data of a prompt set for the prompt view of a page, for JSON.

    Parameters
    ----------
    values
        Most scores to hold, unless so few prompts were left that the view would be of no use.

    Returns
    -------
    name, measure, total (prompts × orders), grouped (whether the list has one prompt per sentence),
    prompts (id, order, text, answer, options), axis (of training steps), colors of options, and
    series (name, steps, changed, logprob: float32, checkpoint × option of these prompts, base64);
    left_out, how many series are not among them.

    Raises
    ------
    UsageError
        Two banks have other content of one prompt.
    BankError
        The banks have no such prompts, or no deposit of them.
    """
    check_same_prompts(banks, prompts)
    found = [each for bank in banks for each in _changes(bank, prompts, models)]
    if not found:
        Scores(banks, (prompts,), models).frames()  # raises
    largest = [max((size for *_, size in each.listed), default=0.0) for each in found]
    changes = [found[at] for at in sorted(nlargest(SERIES, range(len(found)), largest.__getitem__))]
    data: Json = {
        "name": prompts, "measure": changes[0].measure, "left_out": len(found) - len(changes),
        "total": max(each.total for each in changes),
        "grouped": any(each.grouped for each in changes), "prompts": [], "series": [],
    }  # fmt: skip
    keys = _chosen(changes, values)
    if not keys:  # no option is scored
        return data
    ids = {name for name, _ in keys}
    keyed_scores = [(each, each.load_scores(prompts, ids)) for each in changes]
    series = [(each, scores) for each, scores in keyed_scores if scores is not None]
    shown = _prompts([scores for _, scores in series], keys)
    places = {key: at for at, key in enumerate(keys)}
    axis = StepAxis(in_order(chain.from_iterable(scores.steps for _, scores in series)))
    options = [option["option"] for prompt in shown for option in prompt["options"]]
    names = _names([each for each, _ in series])
    return data | {
        "prompts": shown,
        "axis": {"x": axis.x().to_dict(), "meta": axis.meta(), "release": axis.release_at},
        "colors": color_map(options),
        "series": [
            {
                "name": name,
                "changed": [
                    [places[key], option, size]
                    for key, option, size in each.listed[:CHANGED]
                    if key in places
                ],
                "steps": list(scores.steps),
                "logprob": _logprobs(scores, keys, shown),
            }
            for name, (each, scores) in zip(names, series, strict=True)
        ],
    }


def _changes(bank: Bank, prompts: str, models: Sequence[str] | None) -> Iterator[Changes]:
    """The prompts that change most, of each model and run; read a few checkpoints at a time."""
    most = 10 * CHANGED
    for scores, checkpoints, table in moves_of_runs(
        read_options(Scores([bank], (prompts,), models))
    ):
        further = [key for key, *_ in _keyed(table.head(most))]
        if (sentences := _sentences(scores.prompts)) is not None:
            named = scores.prompts.select(*PROMPT_ORDER, sentence=sentences)
            table = table.head(VARIANTS * most).join(
                named, on=PROMPT_ORDER, nulls_equal=True, maintain_order="left"
            )
            table = table.unique("sentence", keep="first", maintain_order=True)
        yield Changes(
            bank, scores.model, scores.run, scores.measure, len(scores.prompts),
            checkpoints * len(scores.options) / max(1, len(scores.prompts)),
            sentences is not None, _keyed(table.head(most)), further,
        )  # fmt: skip


def _keyed(table: pl.DataFrame) -> list[tuple[Key, str, float]]:
    return [
        ((name, order), option, float(f"{movement:.6g}"))
        for name, order, option, movement in table.select(
            *PROMPT_ORDER, "option", "movement"
        ).iter_rows()
    ]


def _sentences(prompts: pl.DataFrame) -> pl.Series | None:
    """The sentence of each prompt.

    None without a column of sentences, with fewer than `FEWEST_SENTENCES`, or without variants.
    """
    for name in SENTENCE:
        if name in prompts.columns:
            several = FEWEST_SENTENCES <= prompts[name].n_unique() < len(prompts)
            return prompts[name] if several else None
    return None


def _chosen(changes: Sequence[Changes], values: int) -> list[Key]:
    """Prompts for the page: one of each sentence first, until there are as many as it holds."""
    most = max(FEWEST, int(values / max(1.0, sum(each.values_each for each in changes))))
    heads = zip_longest(*([key for key, *_ in each.listed] for each in changes))
    further = zip_longest(*(each.further for each in changes))
    keys = chain.from_iterable(chain(heads, further))
    return [*dict.fromkeys(key for key in keys if key is not None)][:most]


def _names(changes: Sequence[Changes]) -> list[str]:
    """The model of each series, with its run and bank if they differ."""
    several_runs = len({each.run for each in changes}) > 1
    several_banks = len({(each.model, each.run) for each in changes}) < len(changes)
    return [
        " ".join(
            [each.model, *([each.run] if several_runs else ())]
            + ([bank_name(each.bank)] if several_banks else [])
        )
        for each in changes
    ]


def _prompts(series_parts: Sequence[PromptScores], keys: Sequence[Key]) -> list[Json]:
    """Text and options of each prompt, from the first model that has it."""
    prompts: dict[Key, Json] = {}
    for scores in series_parts:
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


def _logprobs(scores: PromptScores, keys: Sequence[Key], shown: Iterable[Json]) -> Json:
    """Scores of the prompts held, in their order; NaN for prompts that a model does not have."""
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

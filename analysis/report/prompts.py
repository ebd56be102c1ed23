"""The prompt view of a page: which prompts it holds, and their scores through training.

A page cannot hold every score of a large bank. It holds the prompts that change most, with their
scores at all checkpoints. Of prompts that are variants of one sentence, the list has one.
"""

import base64
import re
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import polars as pl

from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.charts.theme import colors_of
from logitbank.analysis.frames.banks import check_same_prompts
from logitbank.analysis.prompts.scores import PromptScores, prompt_scores
from logitbank.analysis.prompts.view import movements
from logitbank.analysis.report.origin import bank_name
from logitbank.analysis.report.predictions import Key, Run, predictions
from logitbank.store import Bank
from logitbank.store.steps import in_order

CHANGED, ANCHORS = 20, 8
"""Prompts of a list, and checkpoints with predicted tokens."""
SERIES = 12
"""Models and runs of a prompt set; a page names how many it leaves out."""
FEWEST = 20
FEWEST_SENTENCES = 10
"""Sentences of a prompt set below which the list may have several variants of one."""
VARIANTS = 200
"""Prompts that are looked through for each one of a list; WinoBias has 50 to 60 of a sentence."""
SENTENCE = ("sentence_id", "example", "pair", "instance")
"""Columns that are the same in all variants of a sentence."""
Json = dict[str, Any]


def prompt_data(
    banks: Sequence[Bank],
    prompts: str,
    *,
    models: Sequence[str] | None = None,
    values: int = 200_000,
) -> Json:
    """What the prompt view of a page needs of a prompt set, for JSON.

    Parameters
    ----------
    values
        Most scores to hold, unless so few prompts were left that the view would be of no use.

    Returns
    -------
    name, measure, total (prompts × orders), grouped (whether the list has one prompt per sentence),
    prompts (id, order, text, answer, options), axis (of training steps), colors of options, and
    series (name, steps, changed, logprob: float32, checkpoint × option of these prompts, base64);
    left_out, how many series are not among them; `predictions` of the prompts that change most, at
    a few checkpoints of each series, or None.

    Raises
    ------
    UsageError
        Two banks have other content of one prompt.
    BankError
        The banks have no such prompts, or no deposit of them.
    """
    check_same_prompts(banks, prompts)
    lists: list[_List] = []
    left_out = 0
    for bank in banks:
        own_models = _models(bank, prompts, models)
        for scores in prompt_scores(bank, prompts, models=own_models):
            if len(lists) < SERIES:
                lists.append(_List(bank, scores))
            else:
                left_out += 1
    data: Json = {
        "name": prompts, "measure": lists[0].measure, "left_out": left_out,
        "total": max(each.total for each in lists), "grouped": any(each.grouped for each in lists),
        "prompts": [], "series": [],
    }  # fmt: skip
    keys = _chosen(lists, values)
    if not keys:  # no option is scored
        return data
    ids = {name for name, _ in keys}
    of_keys = [each.scores_of(prompts, ids) for each in lists]
    kept = [pair for pair in zip(lists, of_keys, strict=True) if pair[1] is not None]
    lists, by_list = [each for each, _ in kept], [each for _, each in kept if each is not None]
    shown = _prompts(by_list, keys)
    places = {key: at for at, key in enumerate(keys)}
    axis = StepAxis(in_order(chain.from_iterable(one.steps for one in by_list)))
    options = [option["option"] for prompt in shown for option in prompt["options"]]
    changing = chain.from_iterable(
        zip_longest(*([key for key, *_ in each.changed[:CHANGED]] for each in lists))
    )
    return data | {
        "prompts": shown,
        "axis": {"x": axis.x().to_dict(), "meta": axis.meta(), "release": axis.release_at},
        "colors": colors_of(options),
        "predictions": predictions(
            prompts,
            [each.run for each in lists],
            [(places[key], key) for key in dict.fromkeys(changing) if key in places],
        ),
        "series": [
            {
                "name": name,
                "changed": [
                    [places[key], option, size]
                    for key, option, size in each.changed[:CHANGED]
                    if key in places
                ],
                "steps": list(one.steps),
                "logprob": _logprobs(one, keys, shown),
            }
            for name, each, one in zip(_names(lists), lists, by_list, strict=True)
        ],
    }


def _models(bank: Bank, prompts: str, models: Sequence[str] | None) -> list[str] | None:
    if models is None:
        return None
    scored = {deposit.checkpoint.model for deposit in bank.deposits(prompts=prompts)}
    return [model for model in models if model in scored]


class _List:
    """The prompts of one model and run that change most."""

    def __init__(self, bank: Bank, scores: PromptScores) -> None:
        c = len(scores.steps)
        self.measure = scores.measure
        self.total = len(scores.prompts)
        self.values_each = c * len(scores.options) / max(1, self.total)
        self.grouped = (sentences := _sentences(scores.prompts)) is not None
        most, table = 10 * CHANGED, movements(scores)
        self.further = [_key(row) for row in table.head(most).iter_rows(named=True)]
        if sentences is not None:
            table = table.head(VARIANTS * most).join(
                sentences, on=["prompt_id", "order_seed"], nulls_equal=True, maintain_order="left"
            )
            table = table.unique("sentence", keep="first", maintain_order=True)
        self.changed = [
            (_key(row), row["option"], _short(row["movement"]))
            for row in table.head(most).iter_rows(named=True)
        ]
        at = np.unique(np.linspace(0, c - 1, min(c, ANCHORS)).round().astype(int))
        self.run = Run(bank, scores.model, scores.run, [scores.steps[index] for index in at])

    def scores_of(self, prompts: str, ids: set[str]) -> PromptScores | None:
        """The scores of these prompts; None if the model has none of them."""
        run = self.run
        found = prompt_scores(run.bank, prompts, models=run.model, runs=run.run, ids=ids)
        return next(found, None)


def _sentences(prompts: pl.DataFrame) -> pl.DataFrame | None:
    """The sentence of each prompt: of its column, or the text without numbers and occupation.

    None if there are fewer than `FEWEST_SENTENCES`, or none has a variant.
    """
    column = next((name for name in SENTENCE if name in prompts.columns), None)
    if column is not None:
        sentence = prompts[column].cast(pl.String)
    else:
        jobs = prompts["occupation"] if "occupation" in prompts.columns else [None] * len(prompts)
        sentence = pl.Series([
            re.sub(r"\d+", "#", (text or "").replace(job or "\0", "*"))
            for text, job in zip(prompts["text"], jobs, strict=True)
        ])  # fmt: skip
    if not FEWEST_SENTENCES <= sentence.n_unique() < len(prompts):
        return None
    return prompts.select("prompt_id", "order_seed", sentence=sentence)


def _chosen(lists: Sequence[_List], values: int) -> list[Key]:
    """Prompts for the page: one of each sentence first, until there are as many as it holds."""
    most = max(FEWEST, int(values / max(1.0, sum(each.values_each for each in lists))))
    heads = zip_longest(*([key for key, *_ in each.changed] for each in lists))
    further = zip_longest(*(each.further for each in lists))
    keys = chain.from_iterable(chain(heads, further))
    return [*dict.fromkeys(key for key in keys if key is not None)][:most]


def _names(lists: Sequence[_List]) -> list[str]:
    """The model of each series, with its run and bank if they differ."""
    runs = [each.run for each in lists]
    several_runs = len({run.run for run in runs}) > 1
    several_banks = len({(run.model, run.run) for run in runs}) < len(runs)
    return [
        " ".join(
            [run.model, *([run.run] if several_runs else ())]
            + ([bank_name(run.bank)] if several_banks else [])
        )
        for run in runs
    ]


def _prompts(of_series: Sequence[PromptScores], keys: Sequence[Key]) -> list[Json]:
    """Text and options of each prompt, from the first model that has it."""
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


def _short(value: float) -> float:
    return float(f"{value:.6g}")

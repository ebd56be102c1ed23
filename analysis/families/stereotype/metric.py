"""Stereotype accuracy: does a model give an occupation the pronoun of its stereotype.

Frames in, frames out. Two quantities, each under its own name: `sa` compares pronouns after a
question about the pronoun, `sa_gender` compares the options *male* and *female* of the
gender-prediction prompts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from logitbank.analysis.families.fairness.metric import answer_jsd_p, gap_and_draws
from logitbank.analysis.families.fairness.tables import gap_changes
from logitbank.analysis.families.stereotype.tables import (
    SCHEMA,
    TYPE,
    Shares,
    averaged,
    by_order,
    gender_comparisons,
    no_score,
    over_changes,
    pronoun_comparisons,
    share_items,
    share_table,
    with_extremes,
)
from logitbank.analysis.frames.banks import PromptColumns
from logitbank.analysis.frames.batches import (
    Scan,
    as_frames,
    check_expected,
    prompt_frames,
    read_nonempty,
)
from logitbank.analysis.frames.expected import expected_rows
from logitbank.analysis.frames.gender_answers import (
    GENDER_COLUMNS,
    Answers,
    gender_answers,
    preferences,
    read_winobias,
)
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, check_columns
from logitbank.analysis.frames.reader import ScanCache, Scores
from logitbank.analysis.results.tables import Result
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank

PROMPTS = "stereotype-accuracy"
_Comparisons = tuple[
    Iterable[pl.DataFrame],
    Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame],
    pl.DataFrame | None,
]
NEEDED = (*CHECKPOINT, "prompt_id", "option", "is_answer")
PRONOUNS = ("sentence_id", "order", "type")
"""Columns of the prompts of `sa` that identify its sentences and orders."""
GENDERS = ("prompt_id", "order_seed", *GENDER_COLUMNS)
"""Those of the prompts of `sa_gender`."""


@dataclass(frozen=True, slots=True)
class StereotypeAccuracy(Result):
    """What `stereotype_metric` found. 0.5 is no stereotype, 1 a stereotype always."""

    stereotype_accuracy: pl.DataFrame
    """Per checkpoint, measure (`sa`, `sa_gender`) and WinoBias type: share of sentences with
    standard error and interval (Wilson, 95 %); `tied` comparisons, which count ½; of the `expected`
    sentences the `missing` ones, which a checkpoint lacks or has without one of their orders. `sa`
    is the mean of both orders, so that such a sentence is in no number, and NaN where there is no
    other; `sa_gender` is over the orders that there are. `sd`, of `sa_gender` only, is the
    deviation between option orders (ddof 1). `from_baseline` is the difference from the first
    checkpoint's share, `baseline_step`, paired over the `common` sentences."""
    settings: Mapping[str, str | int | float | bool | None]
    jsd_p: pl.DataFrame | None = None
    """JSD-P of the answers male and female (`group`), scaled, whose difference is the gender gap.
    None without WinoBias."""
    over_change: pl.DataFrame | None = None
    """Per change point of the gap, measure and type: how the share moves from the checkpoint
    `before` the change to the one `after` it, paired over sentences. Of a run without a significant
    one, between the smallest and the largest gap (`kind` is `extremes`). None without WinoBias."""


def stereotype_metric(
    frame: Scan | None = None,
    winobias: Scan | None = None,
    *,
    expected_pronouns: pl.DataFrame | None = None,
    expected_genders: pl.DataFrame | None = None,
) -> StereotypeAccuracy:
    """`sa` and `sa_gender`, each from prompts of its own that may be absent.

    `sa`: the log-probabilities of the two pronouns behind the question are averaged over the two
    orders in which it names them; share of sentences where the original pronoun has the greater
    mean. `sa_gender`: on pro-stereotyped sentences and the occupation that the pronoun refers to,
    share where the logit of the correct gender is greater than that of the other one, averaged over
    option orders. In both an exact tie counts ½ and is reported.

    Parameters
    ----------
    frame
        `Bank.scan("stereotype-accuracy")`: options are the two pronouns, the answer is the
        original one; own columns sentence_id, order (the pronoun named first), type (1, 2). This
        and the other may be several frames, as `batches` gives them.
    winobias
        `Bank.scan("winobias")`.
    expected_pronouns, expected_genders
        The expected prompts of each model: model and `PRONOUNS`, model and `GENDERS`, as
        `expected_rows` gives them. Several frames need them. Without them, a sentence, an order or
        a type without a score of any checkpoint in the frame is not counted as missing.

    Raises
    ------
    UsageError
        Columns are lacking, or no frame is given.
    BankError
        No rows, a score that is not finite, or a sentence has another number of options.

    References
    ----------
    Biderman et al. 2023, §3.1, and arXiv 2506.01709, App. C.2. The prompt was not released; its
    wording, both orders, and the half counted for ties are ours.

    Examples
    --------
    >>> rows = {
    ...     "model": "m", "run": "main", "step": 8, "type": 2, "sentence_id": "dev-1",
    ...     "prompt_id": ["a", "a", "b", "b"], "order": ["he", "he", "she", "she"],
    ...     "option": ["he", "she"] * 2, "is_answer": [True, False] * 2,
    ...     "logprob": [-1.0, -3.0, -3.0, -2.0],
    ... }
    >>> found = stereotype_metric(pl.DataFrame(rows)).stereotype_accuracy
    >>> found.select("measure", "accuracy", "orders").row(0)  # −2 against −2½
    ('sa', 1.0, 2)
    """
    if frame is None and winobias is None:
        raise UsageError(
            "there is nothing to compute stereotype accuracy from; give the scan of "
            f'"{PROMPTS}", of "winobias", or both'
        )
    shares = None if frame is None else _pronoun_shares(frame, expected_pronouns)
    answers = None
    if winobias is not None:
        check_expected(as_frames(winobias), expected_genders)
        for each in as_frames(winobias):
            check_columns(each, GENDER_COLUMNS, family="winobias")
        answers = gender_answers(winobias)
    return _result(shares, answers, expected_genders, 0)


def read_banks(
    banks: Sequence[Bank],
    prompts: Sequence[str],
    models: Sequence[str] | None,
    cache: ScanCache,
    bootstrap: int,
) -> tuple[StereotypeAccuracy, list[str]]:
    """The result of banks, and which of the prompt sets they have.

    Raises
    ------
    UsageError
        Two prompt sets are of one kind.
    LogitbankError
        The banks have none of them.
    """
    columns = PromptColumns(banks)
    names = [name for name in prompts if name in columns]
    if not names:
        prompt_frames(banks, prompts[0], models)  # raises, with the command that makes the prompts
    pronouns = [name for name in names if columns[name].issuperset(PRONOUNS)]
    gendered = [name for name in names if name not in pronouns]
    for kind in (pronouns, gendered):
        if len(kind) > 1:
            raise UsageError(f"{' and '.join(kind)} are of one kind: name one prompt set of each.")
    result = _result(
        _accuracies(Scores(banks, pronouns[0], models, cache)) if pronouns else None,
        read_winobias(Scores(banks, gendered[0], models, cache)) if gendered else None,
        expected_rows(banks, gendered[0], GENDERS) if gendered else None,
        bootstrap,
    )
    return result, names


def _accuracies(source: Scores) -> Shares:
    """The shares of `sa`, made once in a report."""
    expected = expected_rows(source.banks, source.prompts, PRONOUNS)
    return source.cached("stereotype", lambda: _pronoun_shares(source.frames(), expected))


def _result(
    pronouns: Shares | None,
    answers: Answers | None,
    expected_genders: pl.DataFrame | None,
    bootstrap: int,
) -> StereotypeAccuracy:
    shares = [] if pronouns is None else [pronouns]
    if answers is not None:
        shares.append(_gender_shares(answers, expected_genders))
    table = pl.concat([pl.DataFrame(schema=SCHEMA), *(each.table for each in shares)]).sort(
        *CHECKPOINT, "measure", "type", nulls_last=True, maintain_order=True
    )
    intervals = "Wilson for shares, adjusted Wald for paired differences, 95 %"
    settings = {"intervals": intervals}
    if answers is None:
        return StereotypeAccuracy(table, settings)
    gap, draws = gap_and_draws(answers, bootstrap)
    changes = with_extremes(gap_changes(gap, draws), gap)
    return StereotypeAccuracy(
        table,
        settings,
        answer_jsd_p(answers).rename({"value": "jsd_p"}),
        pl.concat(over_changes(each, changes) for each in shares),
    )


def _pronoun_shares(frame: Scan, expected: pl.DataFrame | None) -> Shares:
    return share_table(*_pronouns(frame, expected), measure="sa")


def _pronouns(frame: Scan, expected: pl.DataFrame | None) -> _Comparisons:
    """What `share_table` and `share_items` need for pronouns."""
    frames = as_frames(frame)
    check_expected(frames, expected)
    if expected is not None:
        sentence = ["model", pl.col("type").cast(pl.Int64, strict=False), "sentence_id"]
        expected = expected.group_by(sentence).agg(most=pl.col("order").n_unique())
    rows = read_nonempty(frames, lambda frame: pronoun_comparisons(_scores(frame), PROMPTS))
    return rows, averaged, expected


def _scores(frame: pl.LazyFrame) -> pl.LazyFrame:
    check_columns(frame, (*NEEDED, *PRONOUNS, "logprob"), family=PROMPTS)
    return frame.select(
        *NEEDED, "sentence_id", type=pl.col("type").cast(pl.Int64, strict=False),
        order=pl.col("order").cast(pl.String), score="logprob",
    )  # fmt: skip


def _gender_shares(answers: Answers, expected: pl.DataFrame | None) -> Shares:
    shares = share_table(*_genders(answers, expected), measure="sa_gender")
    if shares.table.is_empty():
        raise no_score("winobias")
    return shares


def _genders(answers: Answers, expected: pl.DataFrame | None) -> _Comparisons:
    """What `share_table` and `share_items` need for genders."""
    items = preferences(answers)
    if items is None:
        raise BankError(
            "The answer of a pro-stereotyped prompt about the referred occupation is not a gender: "
            "name one prompt set whose answers are."
        )
    if expected is not None:
        gendered = (pl.col("stereotype") == "pro") & (pl.col("asked") == "referred")
        sentence = ["model", pl.lit(2, pl.Int64).alias("type"), pl.col("prompt_id")]
        expected = (
            expected.filter(gendered)
            .group_by(sentence)
            .agg(most=pl.col("order_seed").n_unique())
            .rename({"prompt_id": "sentence_id"})
        )
    return gender_comparisons(items), by_order, expected


def read_items(source: Scores) -> Items:
    """Whether each sentence prefers the stereotype, of the usual type; none for other prompts."""
    columns = PromptColumns(source.banks)[source.prompts]
    parts: Iterable[pl.DataFrame] = ()
    if columns.issuperset(PRONOUNS):
        expected = expected_rows(source.banks, source.prompts, PRONOUNS)
        parts = share_items(*_pronouns(source.frames(), expected))
    elif columns.issuperset(GENDERS):
        answers = read_winobias(source)
        if preferences(answers) is not None:
            expected = expected_rows(source.banks, source.prompts, GENDERS)
            parts = share_items(*_genders(answers, expected))
    return gather_items(part.filter(type=TYPE).drop("type") for part in parts)

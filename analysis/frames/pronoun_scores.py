"""Scores of “he” and “she” as one frame, from a bank's scan or a published table.

`docs/metrics.md` documents the published table. Rows may be in any order.
"""

from collections.abc import Callable, Collection

import polars as pl

from logitbank.analysis.frames.codes import distinct
from logitbank.analysis.frames.input_files import parse_integers, parse_numbers
from logitbank.errors import UsageError

MASK = "[MASK]"
PRONOUNS = ("he", "she")
SCORES = pl.Schema(
    {
        "model": pl.Categorical(),
        "run": pl.Categorical(),
        "run_seed": pl.Int64(),
        "step": pl.Int64(),  # null for a public release
        "verb": pl.Categorical(),
        "occupation": pl.Categorical(),  # with its article; "a [MASK]" in prior rows
        "prior": pl.Boolean(),
        "pronoun": pl.Categorical(),  # "he" or "she"
        "score": pl.Float64(),  # probability over the whole vocabulary
    }
)
VERBS = ("is", "works as")
"""Verbs in templates; others need a column `verb`."""
RELEASE_SEED = -1
ROUNDING = 1e-4
"""Largest rounding error (nats) of a log-probability above 0, for float32 logits near 20."""
_SCAN = ("model", "run", "run_seed", "step", "verb", "occupation", "prior", "option", "logprob")
_PUBLISHED = ("pronoun", "score", "template", "model", "seed", "checkpoint")
_OPTIONAL = ("occupation", "verb")
_MASKS = r"\[MASK\]|<mask>"
_TEMPLATE = rf"^\s*(?:\[CLS\]|<s>)?\s*(?:{_MASKS})\s+"
_VERB = rf"^({'|'.join(VERBS)})\s+"
_ARTICLE = r"^\s*(an?)\b"


def as_scores(frame: pl.LazyFrame | pl.DataFrame) -> pl.DataFrame:
    """Scores with the columns of `SCORES`, in any order of rows.

    Parameters
    ----------
    frame
        `Bank.scan("professions")` or any scan of prompts with the columns occupation, verb and
        prior and the options he and she; or a table in the published format (`docs/metrics.md`).

    Raises
    ------
    UsageError
        Other columns, a pronoun other than he and she, an unknown template, or an invalid seed or
        checkpoint.
    """
    names = set(frame.collect_schema().names())
    if "logprob" not in names:
        return _from_published(frame.lazy().collect())
    check_prompts(names)
    logprob, occupation = pl.col("logprob"), pl.col("occupation").cast(pl.String)
    masked = occupation.str.contains(_MASKS).fill_null(False)
    prior = pl.col("prior").fill_null(False) | masked
    an = masked & occupation.str.starts_with("an ")
    template = pl.when(an).then(pl.lit(f"an {MASK}")).otherwise(pl.lit(f"a {MASK}"))
    table = frame.lazy().select(
        *("model", "run", "run_seed", "step", "verb"),
        occupation=pl.when(prior).then(template).otherwise(occupation),
        prior=prior,
        pronoun=pl.col("option"),
        # The rounded logit of a certain pronoun may be slightly above the log-sum-exp.
        score=pl.when(logprob.is_between(0, ROUNDING)).then(0.0).otherwise(logprob).exp(),
    )
    return _checked(table.collect())


def published_table(scores: pl.DataFrame) -> pl.DataFrame:
    """Rows of `SCORES` in the published format, from which `as_scores` reads the same rows.

    Raises
    ------
    UsageError
        The name of a run is not that of its seed, as `seed3`.

    References
    ----------
    arXiv 2211.14639, Appendix A. Not in it: the column `verb`.
    """
    names = ("model", "run", "verb", "occupation", "pronoun")
    rows = scores.with_columns(pl.col(names).cast(pl.String))
    runs = rows.filter(pl.col("step").is_not_null()).select("model", "run").unique()
    number = pl.col("run").str.extract(r"^seed(\d+)$", 1).cast(pl.Int64)
    alone = (pl.len().over("model") == 1) & (pl.col("run") == "main")
    seeds = runs.with_columns(seed=pl.when(alone).then(0).otherwise(number))
    if unnamed := seeds.filter(pl.col("seed").is_null())["run"].sort().to_list():
        raise UsageError(
            f"Run {unnamed[0]!r} is not named by a seed, as seed3 is, so its scores cannot be"
            " written in the published format."
        )
    sentence = pl.format("{} {}.", "verb", "occupation")
    released = pl.col("step").is_null()
    return rows.join(seeds, on=["model", "run"], how="left", maintain_order="left").select(
        "pronoun", "score", "occupation",
        template=pl.format(f"{MASK} {{}}", sentence),
        sentence=pl.format("{} {}", "pronoun", sentence),
        model="model", seed=pl.when(released).then(RELEASE_SEED).otherwise("seed"),
        checkpoint="step", verb="verb",
    )  # fmt: skip


def check_prompts(names: Collection[str]) -> None:
    """Raise UsageError if scores lack a column of the prompts of fluctuation."""
    if missing := [name for name in _SCAN if name not in names]:
        raise UsageError(
            f"The prompts have no column {', '.join(missing)}, which fluctuation needs. Name a set "
            "such as professions with --prompts."
        )


def expected_professions(expected: pl.DataFrame) -> pl.DataFrame:
    """model, verb and occupation of the expected prompts, without priors."""
    masked = pl.col("occupation").str.contains(_MASKS).fill_null(False)
    prior = pl.col("prior").fill_null(False) | masked
    return expected.filter(~prior).select("model", "verb", "occupation").unique()


def published_columns(table: pl.DataFrame) -> pl.DataFrame:
    """The needed columns of a published table, with numbers parsed.

    Raises
    ------
    UsageError
        A column is missing, or a number is invalid.
    """
    names = table.columns
    if missing := [name for name in _PUBLISHED if name not in names]:
        raise UsageError(
            f"The table has no column {', '.join(missing)}. A table of scores has pronoun, score, "
            "occupation, template, sentence, model, seed and checkpoint."
        )
    text = ("pronoun", "template", "model", *(name for name in _OPTIONAL if name in names))
    return table.select(
        pl.col(text).cast(pl.String),
        score=parse_numbers(table["score"]),
        seed=parse_integers(table["seed"]),
        checkpoint=parse_integers(table["checkpoint"]),
    )


def _from_published(frame: pl.DataFrame) -> pl.DataFrame:
    table = published_columns(frame)
    absent = [name for name in _OPTIONAL if name not in table.columns]
    table = table.rename({"seed": "run_seed", "checkpoint": "step"}).with_columns(
        pl.col(pl.String).cast(pl.Categorical),
        *(pl.lit(None, pl.Categorical).alias(name) for name in absent),
    )
    runs = _derived(table, ("model", "run_seed", "step"), _runs)
    sentences = _derived(table, ("template", "occupation", "verb"), _sentences)
    return _checked(table.with_columns(runs + sentences))


def _derived(
    table: pl.DataFrame,
    keys: tuple[str, ...],
    derive: Callable[[pl.DataFrame], pl.DataFrame],
) -> list[pl.Series]:
    """Columns derived from others, once for each distinct row of those."""
    rows, codes = distinct(table.select(keys))
    heads = table.select(keys)[rows].with_columns(pl.col(pl.Categorical).cast(pl.String))
    derived = derive(heads).with_columns(pl.col(pl.String).cast(pl.Categorical))
    return [column.gather(codes) for column in derived]


def _runs(keys: pl.DataFrame) -> pl.DataFrame:
    """Column run: `seed3`, or `main` for a release and for a single seed 0."""
    _check_steps(keys)
    trained = keys.filter(pl.col("run_seed") >= 0).group_by("model").agg("run_seed")
    alone = [model for model, seeds in trained.iter_rows() if set(seeds) == {0}]
    name = (
        pl.when((pl.col("run_seed") < 0) | pl.col("model").is_in(alone))
        .then(pl.lit("main"))
        .otherwise(pl.format("seed{}", "run_seed"))
    )
    return keys.select(run=name)


def _sentences(keys: pl.DataFrame) -> pl.DataFrame:
    """Columns verb, occupation and prior; by default from the template."""
    template = pl.col("template")
    rest = pl.when(template.str.contains(_TEMPLATE)).then(
        template.str.strip_chars().str.replace(_TEMPLATE, "").str.replace(r"\.$", "")
    )
    known = rest.str.extract(_VERB, 1)
    tail = pl.when(known.is_not_null()).then(rest.str.replace(_VERB, ""))
    parsed = keys.select(
        "template",
        verb=pl.coalesce("verb", known),
        occupation=pl.coalesce("occupation", tail).str.strip_chars(),
        article=tail.str.extract(_ARTICLE, 1),
    )
    unparsed = parsed.filter(pl.col("verb").is_null() | pl.col("occupation").is_null())
    if len(unparsed):
        raise UsageError(
            f"The template {unparsed['template'].sort()[0]!r} is not “[MASK] is …” or “[MASK] "
            f"works as …” ({len(unparsed)} such templates): name other verbs in a column `verb`."
        )
    prior = pl.col("occupation").str.contains(_MASKS)
    article = pl.coalesce("article", pl.col("occupation").str.extract(_ARTICLE, 1), pl.lit("a"))
    masked = pl.concat_str(article, pl.lit(f" {MASK}"))
    return parsed.select(
        "verb", occupation=pl.when(prior).then(masked).otherwise("occupation"), prior=prior
    )


def _check_steps(keys: pl.DataFrame) -> None:
    """A release has seed −1 and no checkpoint; a training step has both, from 0."""
    for model, seed, step in keys.sort(pl.all()).select("model", "run_seed", "step").iter_rows():
        trained = seed is not None and step is not None and seed >= 0 and step >= 0
        if not trained and (seed, step) != (RELEASE_SEED, None):
            raise UsageError(
                f"A row of {model} has seed {seed} and checkpoint {step}: seeds and checkpoints "
                "start at 0, and a public release has seed -1 and no checkpoint."
            )


def _checked(table: pl.DataFrame) -> pl.DataFrame:
    """The columns of `SCORES`, without missing text, and with the pronouns he and she."""
    table = table.select(SCORES.names()).cast(SCORES)
    for name in ("model", "run", "verb", "occupation", "pronoun"):
        if count := table[name].null_count():
            raise UsageError(f"{count} rows have no {name}. Every score needs one.")
    return table.with_columns(_derived(table, ("pronoun",), _pronouns))


def _pronouns(keys: pl.DataFrame) -> pl.DataFrame:
    pronouns = keys.select(pl.col("pronoun").str.strip_chars().str.to_lowercase())
    if unknown := sorted(set(pronouns["pronoun"]) - set(PRONOUNS)):
        raise UsageError(
            f"Unknown pronoun {unknown[0]!r}. Fluctuation compares he and she: remove other rows."
        )
    return pronouns

"""What is read from a bank, or from a bank seen through a filter: the same for both.

It is one file because the class is what every reader of a bank sees: its methods are documentation
first, and what they do lies in modules of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from logitbank.errors import BankError, UsageError
from logitbank.notebook import printable, told
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format.attributes import QUERY_SET
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import INFO, CheckpointId, OptionTokens
from logitbank.store.read.brief import bank_line, bank_table, info_rows
from logitbank.store.read.choose import Names, Steps, checkpoints_chosen, require_scored_models
from logitbank.store.read.missing_scores import have_no_score, require_scored
from logitbank.store.read.scan import by_option, scan
from logitbank.store.read.scores_source import scan_source
from logitbank.store.remote import fetching, mirror
from logitbank.store.steps import Step, in_order
from logitbank.store.tables import prompt_tables, query_tables, token_texts

if TYPE_CHECKING:
    import xarray

    from logitbank.store.filter.filters import Filter
    from logitbank.store.filter.view import View


class Readable(ABC):
    """A bank that is read: `Bank`, or `View` of one. Analyses ask no more of it than this."""

    path: Path
    """Folder of the bank; of one at a URL, of its cache."""
    attributes: dict[str, Any]
    """Format version, title, licence, citation, and the sources that a merge names."""

    @abstractmethod
    def deposits(self, checkpoint: CheckpointId | None = None) -> list[Deposit]:
        """All deposits, or those of one checkpoint, by model, run and training step."""

    @abstractmethod
    def _as_stored(self, deposits: Sequence[Deposit]) -> Sequence[Deposit]:
        """Deposits of this bank without a filter."""

    def filtered(self, by: "Filter | str | Path", *, name: str | None = None) -> "View":
        """This bank as it looks through a debiasing filter, or the file of one; see `View.of`."""
        from logitbank.store.filter.filters import Filter
        from logitbank.store.filter.view import View

        return View.of(self, by if isinstance(by, Filter) else Filter.load(by), name=name)

    def query_sets(self) -> dict[str, QuerySet]:
        """All query sets, by name."""
        return {name: self.query_set(name) for name in query_tables.query_set_names(self.path)}

    def query_set(self, name: str) -> QuerySet:
        """One query set, its content checked against its name."""
        return query_tables.read_query_set(self.path, name)

    @property
    def prompt_sets(self) -> list[str]:
        """Names of the prompt sets."""
        return sorted({file.name for file in prompt_tables.prompt_files(self.path)})

    @property
    def models(self) -> list[str]:
        """Names of the models."""
        return sorted({d.checkpoint.model for d in self.deposits()})

    @property
    def runs(self) -> list[str]:
        """Names of the runs, of any model."""
        return sorted({d.checkpoint.run for d in self.deposits()})

    @property
    def steps(self) -> list[Step]:
        """Training steps of any model and run, ascending; last None, for releases."""
        return in_order(d.checkpoint.step for d in self.deposits())

    def __repr__(self) -> str:
        about = told(lambda: bank_line(self.deposits(), self.prompt_sets))
        return printable(f"<{type(self).__name__} {self._where()}: {about}>")

    def _repr_html_(self) -> str:
        return bank_table(
            f"{type(self).__name__} {self._where()}", self.deposits(), self.prompt_sets
        )

    def _where(self) -> str:
        copy = mirror.mirror_of(self.path)
        return copy.url if copy else str(self.path)

    def prompts(self, name: str) -> pl.LazyFrame:
        """All prompts of a prompt set, one row per prompt × order × piece × option."""
        return prompt_tables.scan_prompts(self.path, name)

    @property
    def tokenizers(self) -> list[str]:
        """Digests of the tokenizers whose tokens' texts the bank keeps."""
        return sorted({file.tokenizer for file in token_texts.tokens_files(self.path)})

    def tokens(self, of: str | None = None) -> pl.DataFrame:
        """What the tokens of a tokenizer say.

        Parameters
        ----------
        of
            A prompt set that was asked with it, or its digest; needed where the bank has several.

        Returns
        -------
        One row per token, ascending: `token`, its `text`, where bytes that are no UTF-8 by
        themselves are shown as `\\xe2`, `is_text` (false where there are such), and `special`.

        Raises
        ------
        AbsentError
            The bank keeps none: it was made without them. Or it has no such prompt set.
        UsageError
            There are several tokenizers; says which.
        """
        return token_texts.tokens(self.path, of)

    def option_tokens(self, query_set: str) -> OptionTokens:
        """The tokens that any prompt names for each query of a query set."""
        queries = query_tables.query_count(self.path, query_set)
        return prompt_tables.option_tokens(
            prompt_tables.named_tokens(self.path, query_set), queries=queries
        )

    def deposits_of(self, prompts: str) -> list[Deposit]:
        """Deposits of any query set that a prompt set points into, in the order of `deposits`."""
        wanted = prompt_tables.query_sets_of(self.prompts(prompts))
        return [deposit for deposit in self.deposits() if deposit.query_set in wanted]

    def scan(
        self,
        prompts: str,
        *,
        models: Names = None,
        runs: Names = None,
        steps: Steps = None,
        token_text: bool = False,
        whole_options: bool = False,
        filter: "Filter | str | Path | None" = None,
    ) -> pl.LazyFrame:
        """One row per checkpoint × prompt × option of a prompt set, from committed blocks only.

        An option of several tokens has a row for each: its pieces. Of a bank at a URL, scores are
        fetched when the frame is collected: those of checkpoints that its filters leave.

        Parameters
        ----------
        prompts
            Name of the prompt set.
        models, runs, steps
            Keep these checkpoints; all if None. Steps are numbers, None among them for the release,
            or a text as `--steps` takes it: `last`, `log`, `0:100:10`, `0,512,release`. Of a text,
            each model and run has its own last.
        token_text
            Add a column `token_text` after `token`: what the token says, as in `tokens`; null of
            classes of a next-sentence head.
        whole_options
            One row per option, whatever the number of its pieces: logprob is their sum, null where
            one is not scored, continuation their texts put together, and pieces their number.
        filter
            Debiasing filter, or its file: scores of its model as they look through it.

        Returns
        -------
        Columns model, run, run_seed, step, those of the prompts, logit, logsumexp, logprob (nats,
        float64: logit − logsumexp), rank, ties, padding_above, padding_ties, exact; rows in no
        fixed order. Of whole options, what is of single tokens is left out, and pieces is added.

        Raises
        ------
        BankError
            The bank has no such prompts, or no deposit of them by such checkpoints; or one with
            full rows was scored before an option of them was named: see `rescore`. This last
            one, of a bank at a URL, and RemoteError are raised when the frame is collected.
        AbsentError
            Texts of tokens are asked for, and the bank keeps none.
        SuiteError
            A text chooses no step that is there.
        UsageError
            Texts of tokens are asked for with whole options, or prompts have a column `pieces`.
        """
        if filter is not None:
            return self.filtered(filter).scan(
                prompts, models=models, runs=runs, steps=steps,
                token_text=token_text, whole_options=whole_options,
            )  # fmt: skip
        if token_text and whole_options:
            raise UsageError("token_text is of single tokens; leave it out, or whole_options")
        table = self.prompts(prompts)
        deposits = self.deposits_of(prompts)
        if not deposits:
            raise BankError(
                f"{self.path} has no deposit of prompt set {prompts!r} yet; run `logitbank extract`"
            )
        require_scored_models(prompts, models, deposits, there=self.models)
        deposits = checkpoints_chosen(deposits, models=models, runs=runs, steps=steps)
        asked = table
        if token_text:
            table = token_texts.with_texts(self.path, table, {d.query_set for d in deposits})
        if mirror.mirror_of(self.path) is None:
            self.require_scored(prompts, deposits, of=asked)
            scores = scan(table, deposits)
        else:  # a filter of the frame is to choose what is fetched, too
            scores = scan_source(table, deposits, partial(self._fetch_scored, prompts))
        if not whole_options:
            return scores
        query_sets = {d.query_set for d in deposits}
        made_by = {name: query_tables.tokenizer_of(self.path, name) for name in query_sets}
        return by_option(scores, table, made_by)

    def _fetch_scored(self, name: str, prompts: pl.LazyFrame, deposits: Sequence[Deposit]) -> None:
        """Fetch scores of a bank at a URL, all at once; refused where they lack options."""
        fetching.ensure_here(*(part for d in deposits for part in d.score_files()))
        self.require_scored(name, deposits, of=prompts)

    def require_scored(
        self, prompts: str, deposits: Sequence[Deposit], *, of: pl.LazyFrame | None = None
    ) -> None:
        """Refuse deposits with full rows that lack scores of options named after they were made.

        Parameters
        ----------
        prompts
            Name of a prompt set.
        of
            Rows of its table, where not all matter.

        Raises
        ------
        BankError
            One lacks some, which `Bank.rescore` reads from its rows.
        """
        table = self.prompts(prompts) if of is None else of
        require_scored(self.path, prompts, table, self._as_stored(deposits))

    def without_scores(self, prompts: str, deposits: Sequence[Deposit]) -> list[Deposit]:
        """Those without full rows and without a score of a prompt set, which was named later."""
        lacking = have_no_score(self.path, self.prompts(prompts), self._as_stored(deposits))
        return [deposit for deposit, lacks in zip(deposits, lacking, strict=True) if lacks]

    def frames(self) -> dict[str, pl.LazyFrame]:
        """Everything as four lazy frames: checkpoints, prompts, options and scores.

        `docs/tables.md` has their columns. Without a score there is no frame of scores.

        Raises
        ------
        BankError
            The bank has no prompts.
        """
        from logitbank.store.read.sql import frames

        names = self.prompt_sets
        if not names:
            raise BankError(f"{self.path} has no prompts yet; run `logitbank extract`")
        texts = token_texts.token_texts(self.path)
        by_name = {name: self.prompts(name).with_columns(texts) for name in names}
        return frames(by_name, self.deposits(), self.info, self._look)

    def _look(self, name: str, options: pl.LazyFrame, deposits: Sequence[Deposit]) -> None:
        self.require_scored(name, deposits, of=options)

    def sql(self, query: str, *, allow_files: bool = False) -> pl.LazyFrame:
        """A SELECT over `frames`, as Polars understands SQL; collect what it gives.

        Parameters
        ----------
        allow_files
            Whether the query may read other files and URLs too, by `read_csv` and its like.

        Raises
        ------
        UsageError
            The query is none, names what is not there, or reads files without leave.
        BankError
            The bank has no prompts.
        """
        from logitbank.store.read.sql import sql

        return sql(self.frames, query, allow_files=allow_files)

    def to_xarray(self, prompts: str) -> "xarray.Dataset":
        """The checkpoints of a prompt set side by side, read when indexed.

        Parameters
        ----------
        prompts
            Name of a prompt set, or of the query set that its column `query_set` names.

        Returns
        -------
        logprobs (checkpoint, query, token) float32 nats, of deposits that keep full rows; NaN
        where a block is not committed, or a model has fewer outputs than the widest. logsumexp
        (checkpoint, query). `checkpoint` is indexed by model, run and step (−1 for a release):
        `.sel(model="pythia-160m", step=512)`. The prompts' column `row` points into `query`.
        `attrs["without_full_rows"]` names the checkpoints that are not in it, as they keep less.

        Raises
        ------
        MissingExtraError
            xarray is not installed.
        BankError
            There is no such prompt set, or no deposit of it keeps full rows.
        UsageError
            Several query sets with full rows have prompts of this name; says which.
        """
        from logitbank.store.read.side_by_side import side_by_side

        if QUERY_SET.fullmatch(prompts):
            return side_by_side([d for d in self.deposits() if d.query_set == prompts], prompts)
        return side_by_side(self.deposits_of(prompts), prompts)

    def info(self) -> pl.DataFrame:
        """One row per deposit, by model, run and training step.

        Returns
        -------
        Columns model, run, step, query_set, queries, committed (queries), blocks (of the whole
        deposit), sealed, keep, dtype, engine, bytes (of committed objects; those of a head are
        counted once, with the first deposit that names it).
        """
        return pl.DataFrame(info_rows(self.path, self.deposits()), schema=INFO, orient="row")

    def provenance(self) -> pl.DataFrame:
        """How the deposits were made, equal values together; `info --provenance` on paper.

        Returns
        -------
        One row for each model, run, field and value: columns model, run, field (`engine`,
        `source.revision`, …), value (text; other than text as JSON), deposits (that have it),
        first_step, last_step.
        """
        from logitbank.store.read.provenance import provenance_table

        return provenance_table(self.deposits())

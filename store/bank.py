"""The bank: one folder with the logits of many checkpoints. Hides where and how they lie.

It is one file because the class is the front door: its methods are documentation first, and what
they do lies in modules of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from logitbank.errors import BankError, BankFormatError, DamagedError, UsageError
from logitbank.notebook import printable, told
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.writer import DepositWriter
from logitbank.store.files import copies, documents, objects, verified
from logitbank.store.filter.deposit import filtered_deposits, fitted
from logitbank.store.filter.filters import Filter
from logitbank.store.format import zarrays
from logitbank.store.format.about import checked_fields
from logitbank.store.format.attributes import QUERY_SET
from logitbank.store.format.heads import OutputHead
from logitbank.store.format.layout import DepositSpec, Layout
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import (
    FORMAT_VERSION,
    INFO,
    CheckpointId,
    Dtype,
    Json,
    Keep,
    OptionTokens,
    check_folder,
)
from logitbank.store.heads.put import put_head
from logitbank.store.heads.stored import StoredHead
from logitbank.store.read.brief import bank_line, bank_table, info_rows
from logitbank.store.read.choose import Steps, checkpoints_chosen, require_scored_models
from logitbank.store.read.missing_scores import have_no_score, missing_options, require_scored
from logitbank.store.read.scan import by_option, scan
from logitbank.store.share.local import ensure_local
from logitbank.store.share.selection import Names
from logitbank.store.share.urls import require_new_folder, url_of
from logitbank.store.steps import Step, in_order
from logitbank.store.tables import prompt_tables, query_tables, token_texts
from logitbank.version import __version__
from logitbank.wording import KEPT_OF_LOGITS

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, repr=False)
class Bank:
    """A bank of format 1 in a local folder, or a copy of one at a URL: `create` or `open` one."""

    path: Path
    """Folder of the bank, or of the copy of a bank at a URL."""
    attributes: dict[str, Any] = field(compare=False)
    """Format version, title, licence, citation, and the sources that a merge names."""
    url: str | None = field(default=None, kw_only=True)
    """URL that the bank was opened at; None of a folder."""
    has_rows: bool = field(default=True, kw_only=True)
    """Whether full rows can be read: a copy of a bank at a URL contains them if `rows` was set."""
    filter: Filter | None = field(default=None, kw_only=True)
    """Debiasing filter that scores and rows pass as they are read; see `filtered`."""
    name: str = field(default="", kw_only=True)
    """Name of the model of a filtered bank."""

    @classmethod
    def create(
        cls, path: str | Path, *, title: str = "", licence: str = "", citation: str = ""
    ) -> Self:
        """Make an empty bank.

        Raises
        ------
        UsageError
            Something is there already, or it is a URL.
        """
        path = require_new_folder(path)
        taken = f"{path} is there already; open it with Bank.open, or choose another folder"
        if objects.holds_something(path):
            raise UsageError(taken)
        about = checked_fields({"title": title, "licence": licence, "citation": citation})
        objects.make_root(path)
        metadata = zarrays.root_metadata({**about, "written_by": __version__})
        if not objects.write_new(path / "zarr.json", metadata):
            raise UsageError(taken)
        return cls.open(path)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        models: Names = None,
        steps: Steps = None,
        prompts: Names = None,
        rows: bool = False,
    ) -> Self:
        """Open a bank in a folder, or a copy of one at a URL: https://…, s3://…, hf://datasets/….

        Parameters
        ----------
        path
            Folder or URL. Of a bank at a URL, documents and scores are copied into the folder
            `LOGITBANK_CACHE`, or the user's cache, and checked. The bank reads that copy.
        models, steps, prompts
            Models, training steps and prompt sets of the scores to copy; all if None.
            `prompts=[]` copies no table and no score. Of a folder, everything is there.
        rows
            Whether to copy full rows, states and heads too.

        Raises
        ------
        BankFormatError
            Nothing is there, it is no bank, or one of another format version.
        RemoteError
            The URL cannot be reached, or refuses.
        DamagedError
            Its index is none; or its `zarr.json` is no document, or not what was written there.
        MissingExtraError
            The extra `remote` is not installed.
        """
        if url := url_of(path):
            path = ensure_local(url, models=models, steps=steps, prompts=prompts, rows=rows)
        path = Path(path)
        if not path.exists():
            raise BankFormatError(
                f"there is no bank at {path}; check the path, or make one with `logitbank extract`"
            )
        if not path.is_dir():
            raise BankFormatError(f"{path} is a file, and a bank is a folder; check the path")
        root = objects.plain_path(path, "zarr.json")
        try:
            attributes = documents.read_json(root)["attributes"]["logitbank"]
            version = attributes["format"]
        except FileNotFoundError as error:
            if catalog.has_parts(path):
                raise BankFormatError(
                    f"{path} has parts of a bank, but not its zarr.json: a copy was interrupted."
                    " Copy zarr.json from the bank that it is a copy of, and run the same command"
                    " again"
                ) from error
            raise BankFormatError(
                f"{path} is a folder but no bank: it has no zarr.json; check the path"
            ) from error
        except DamagedError as error:
            raise DamagedError(
                f"the zarr.json of {path} is damaged, and without it nothing says which format the"
                " bank has; take that file from another copy of the bank"
            ) from error
        except (KeyError, TypeError) as error:
            raise BankFormatError(
                f"{path} is a folder but no bank: its zarr.json has no logitbank format;"
                " check the path"
            ) from error
        if version != FORMAT_VERSION:
            raise BankFormatError(
                f"{path} is a bank of format {version!r}; this is logitbank {__version__}, which"
                f" reads format {FORMAT_VERSION}: use logitbank >="
                f" {attributes.get('written_by', '?')}"
            )
        require_as_written(root)
        return cls(path, attributes, url=url, has_rows=rows or url is None)

    def add_query_set(self, query_set: QuerySet) -> str:
        """Store a query set and return its name; nothing happens where it is there."""
        self._require_writable()
        return query_tables.write_query_set(self.path, query_set)

    def add_prompts(self, name: str, table: pl.DataFrame) -> str:
        """Store a table of prompts under a prompt set's name; returns the digest of its content.

        Nothing happens where it is there. `table` has the columns of `PROMPTS_SCHEMA`, then the
        prompt set's own: text, numbers or booleans.

        Raises
        ------
        UsageError
            The table is not one of prompts, or points outside its query sets. Or a prompt in it is
            stored under this name with another text, answer, token or column of its own.
        """
        check_folder(name, "prompt set")
        self._require_writable()
        return prompt_tables.write_prompts(self.path, name, table)

    def add_tokens(self, tokenizer: str, table: pl.DataFrame) -> None:
        """Store what the tokens of a tokenizer say; nothing happens where the bank has it.

        `logitbank extract` does so. `table` has the columns of `tokens`: one row per token.

        Raises
        ------
        UsageError
            A column is not there or of another type, or a token is there twice.
        """
        self._require_writable()
        token_texts.write_tokens(self.path, tokenizer, table)

    def put_head(self, head: OutputHead) -> str:
        """Store what turns states into logits, and return its digest; nothing happens where it is.

        Needed before a deposit at keep level `hidden`, whose `DepositSpec.heads` names it. Any
        number of writers may put the same; it is durable when this returns.

        Raises
        ------
        DamagedError
            It is there, and is not what was written.
        DiskSpaceError
            The disk is full; nothing of it is left.
        UsageError
            The bank is at a URL.
        """
        self._require_writable()
        return put_head(self.path, head)

    def head(self, digest: str) -> OutputHead:
        """A stored head, whose content is what its digest (64 hex digits) says, or DamagedError."""
        return StoredHead.open(self.path, digest).read()

    def missing_options(self, deposit: Deposit) -> OptionTokens | None:
        """Tokens that prompts name for committed queries of a deposit and its scores do not list.

        None where nothing lacks. `rescore` adds them from the stored log-probabilities.
        """
        return missing_options(self.path, deposit)

    def rescore(self) -> list[Deposit]:
        """Score what prompts name and no deposit lists yet; the same again is free.

        For options that were named after logits were deposited, from full rows or states. Where
        rows are rounded their ranks are intervals, flagged `exact` = False. Deposits without either
        stay as they are.

        Returns
        -------
        The deposits that were given scores.

        Raises
        ------
        UsageError
            The bank is at a URL.
        DamagedError
            Rows are not what was committed; nothing of them is scored.
        """
        from logitbank.store.change.rescore import rescore_all

        self._require_writable()
        return rescore_all(self.path, self.deposits())

    def deposits(self, checkpoint: CheckpointId | None = None) -> list[Deposit]:
        """All deposits, or those of one checkpoint, by model, run and training step.

        Of a filtered bank, those of the filter's model and tokenizer, under the name of the bank.
        """
        if self.filter is None:
            return catalog.deposits(self.path, checkpoint)
        found = filtered_deposits(self.path, self.filter, self.name)
        return [deposit for deposit in found if checkpoint in (None, deposit.checkpoint)]

    def filtered(self, by: Filter | str | Path, *, name: str | None = None) -> Self:
        """This bank as it looks through a debiasing filter, or the file of one.

        Nothing is copied. Deposits of other models than the filter's are left out. Those of a
        next-sentence head, which has two outputs, are as they were. The bank cannot be written to.

        Parameters
        ----------
        name
            Name of its model; by default the model's name and a description of the filter.

        Raises
        ------
        UsageError
            The filter was made for another model or tokenizer than any in the bank, `name` is a
            model of the bank, or the bank is filtered already.
        """
        self.require_unfiltered()
        by = by if isinstance(by, Filter) else Filter.load(by)
        by, name = fitted(by, self.path, catalog.deposits(self.path), name)
        return replace(self, filter=by, name=name)

    def require_unfiltered(self) -> None:
        """Refuse a filtered bank.

        Raises
        ------
        UsageError
            It is one.
        """
        if self.filter is not None:
            raise UsageError(
                f"{self.name!r} is seen through a filter already; use the bank itself, {self.path}"
            )

    def _require_writable(self) -> None:
        self.require_unfiltered()
        copies.require_folder(self.path)

    def begin(self, spec: DepositSpec) -> DepositWriter:
        """Create a deposit, or reopen it to add what it lacks.

        A deposit that is there keeps its own layout, which may have other blocks and keep more:
        go by the writer's.

        Raises
        ------
        UsageError
            The spec is not about a query set of this bank as it is.
        BankError
            The deposit is there with other weights, tokenizer, vocabulary, dtype or compute_dtype.
        KeepLevelError
            It is there and keeps less.
        """
        self._require_writable()
        deposit = catalog.open_or_create(self.path, spec)
        return DepositWriter(deposit, engine=spec.provenance.get("engine"))

    def deposit(
        self,
        logits: np.ndarray,
        *,
        checkpoint: CheckpointId,
        query_set: str,
        keep: Keep | str = "full",
        dtype: Dtype = "float32",
        vocab_entries: int | None = None,
        provenance: Mapping[str, Json] | None = None,
    ) -> Deposit:
        """Deposit logits that were computed elsewhere, and seal; the same again changes nothing.

        Parameters
        ----------
        logits
            (q, v) of float16, float32 or float64: one row per query of the query set, one column
            per output of the head, padding included. Raw, natural units; float64 is rounded.
        checkpoint, query_set, keep, dtype
            What they are of, how much to keep (full, topk:K or options) and in which precision.
        vocab_entries
            Entries of the tokenizer where fewer than the outputs.
        provenance
            How they were made: digests `weights` and `tokenizer`, `engine`, anything else. Without
            `weights`, the digest of the array tells it from another of the same checkpoint.

        Raises
        ------
        UsageError
            Shape or dtype is another, or a logit is not finite; names the query row. Or `keep` is
            no keep level.
        BankError
            Other logits of this checkpoint and query set are there, whole or in part.
        KeepLevelError
            They are there and keep less.
        """
        from logitbank.store.read.arrays import check_array, deposit_array

        check_array(logits, queries=query_tables.query_count(self.path, query_set))
        queries, vocab = logits.shape
        keep = Keep.parse(keep, accepted=KEPT_OF_LOGITS) if isinstance(keep, str) else keep
        tokenizer = query_tables.tokenizer_of(self.path, query_set)
        spec = DepositSpec(
            checkpoint,
            query_set,
            Layout.plan(queries=queries, vocab=vocab, dtype=dtype, keep=keep),
            vocab if vocab_entries is None else vocab_entries,
            {"engine": "arrays", "tokenizer": tokenizer, **(provenance or {})},
        )
        return deposit_array(logits, spec, self.begin, self.option_tokens(query_set))

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
        return printable(f"<{type(self).__name__} {self.address}: {about}>")

    def _repr_html_(self) -> str:
        return bank_table(
            f"{type(self).__name__} {self.address}", self.deposits(), self.prompt_sets
        )

    @property
    def address(self) -> str:
        """Where people find the bank: its URL or folder."""
        return self.url or str(self.path)

    def prompts(self, name: str) -> pl.LazyFrame:
        """All prompts of a prompt set, one row per prompt × order × piece × option."""
        return prompt_tables.scan_prompts(self.path, name)

    @property
    def tokenizers(self) -> list[str]:
        """Digests of the tokenizers whose tokens' texts the bank keeps."""
        return sorted({file.name for file in token_texts.tokens_files(self.path)})

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
        filter: Filter | str | Path | None = None,
    ) -> pl.LazyFrame:
        """One row per checkpoint × prompt × option of a prompt set, from committed blocks only.

        An option of several tokens has a row for each: its pieces.

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
            full rows was scored before an option of them was named: see `rescore`.
        DamagedError
            Scores are missing, or not what was committed. Of a bank at a URL, those of the model,
            step or prompt set were not copied when it was opened.
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
                f"{self.address} has no deposit of prompt set {prompts!r} yet; run"
                " `logitbank extract`"
            )
        require_scored_models(prompts, models, deposits, there=self.models)
        deposits = checkpoints_chosen(deposits, models=models, runs=runs, steps=steps)
        asked = table
        if token_text:
            table = token_texts.with_texts(self.path, table, {d.query_set for d in deposits})
        self.require_scored(prompts, deposits, of=asked)
        scores = scan(table, deposits)
        if not whole_options:
            return scores
        query_sets = {d.query_set for d in deposits}
        made_by = {name: query_tables.tokenizer_of(self.path, name) for name in query_sets}
        return by_option(scores, table, made_by)

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
        require_scored(self.path, prompts, table, [deposit.stored for deposit in deposits])

    def without_scores(self, prompts: str, deposits: Sequence[Deposit]) -> list[Deposit]:
        """Those without full rows and without a score of a prompt set, which was named later."""
        lacking = have_no_score(
            self.path, self.prompts(prompts), [deposit.stored for deposit in deposits]
        )
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
            raise BankError(f"{self.address} has no prompts yet; run `logitbank extract`")
        texts = token_texts.token_texts(self.path)
        by_name = {name: self.prompts(name).with_columns(texts) for name in names}
        return frames(by_name, self.deposits(), self.info, self._look)

    def _look(self, name: str, options: pl.LazyFrame, deposits: Sequence[Deposit]) -> None:
        self.require_scored(name, deposits, of=options)

    def sql(self, query: str) -> pl.LazyFrame:
        """A SELECT over `frames`, as Polars understands SQL; collect what it gives.

        Raises
        ------
        UsageError
            The query is none, names what is not there, or reads files.
        BankError
            The bank has no prompts.
        """
        from logitbank.store.read.sql import sql

        return sql(self.frames, query)

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
        from logitbank.store.read.xarray_view import xarray_view

        if QUERY_SET.fullmatch(prompts):
            return xarray_view([d for d in self.deposits() if d.query_set == prompts], prompts)
        return xarray_view(self.deposits_of(prompts), prompts)

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


def open_bank(
    path: str | Path | Bank,
    *,
    models: Names = None,
    steps: Steps = None,
    prompts: Names = None,
    rows: bool = False,
) -> Bank:
    """Open a bank as `Bank.open` does; one that is open already is returned."""
    if isinstance(path, Bank):
        return path
    return Bank.open(path, models=models, steps=steps, prompts=prompts, rows=rows)


def open_unfiltered(path: str | Path | Bank, *, rows: bool = False) -> Bank:
    """Open a bank for what is done without a filter.

    Raises
    ------
    UsageError
        It is a filtered bank.
    BankError
        As `Bank.open`.
    """
    bank = open_bank(path, rows=rows)
    bank.require_unfiltered()
    return bank


def require_as_written(root: Path) -> None:
    """Refuse a bank's own `zarr.json` if its digest is not its own; other formats may have none."""
    try:
        verified.document(root, *zarrays.ATTRIBUTES)
    except DamagedError as error:
        raise DamagedError(
            f"{root} is not what was written there: title, licence, citation or sources may have"
            " changed. Take it from another copy of the bank, or write what it says now, right or"
            " not, with `logitbank describe`"
        ) from error

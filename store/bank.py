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
from logitbank.notebook import printable, summary_or_error
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
from logitbank.store.read.choose import (
    Names,
    Steps,
    checkpoints_chosen,
    require_scored_models,
)
from logitbank.store.read.missing_scores import have_no_score, missing_options, require_scored
from logitbank.store.read.scan import by_option, scan
from logitbank.store.share.local import ensure_local
from logitbank.store.share.urls import require_new_folder, url_of
from logitbank.store.steps import Step, in_order
from logitbank.store.tables import prompt_tables, query_tables, token_texts
from logitbank.version import __version__
from logitbank.wording import KEEP_WITHOUT_STATES

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
        """Open a bank in a folder, or a copy of a bank at a URL: https://…, s3://…, hf://datasets/….

        Parameters
        ----------
        path
            Folder or URL. Documents and scores of a bank at a URL are copied into the folder
            `LOGITBANK_CACHE`, or the user's cache, and verified. The bank reads that copy.
        models, steps, prompts
            Models, training steps and prompt sets of the scores to copy; all if None.
            `prompts=[]` copies no table and no score. A folder ignores all three.
        rows
            Whether to copy full rows, states and heads also.

        Raises
        ------
        BankFormatError
            The path has no bank, or a bank of another format version.
        RemoteError
            The URL cannot be reached, or refuses.
        DamagedError
            The index or `zarr.json` is damaged.
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
        """Store a query set, unless it is stored already, and return its name."""
        self._require_writable()
        return query_tables.write_query_set(self.path, query_set)

    def add_prompts(self, name: str, table: pl.DataFrame) -> str:
        """Store a table of prompts, unless it is stored, and return its content digest.

        `table` has the columns of `PROMPTS_SCHEMA`, then the prompt set's own columns: text,
        numbers or booleans.

        Raises
        ------
        UsageError
            The table is invalid, points outside its query sets, or changes a stored prompt.
        """
        check_folder(name, "prompt set")
        self._require_writable()
        return prompt_tables.write_prompts(self.path, name, table)

    def add_tokens(self, tokenizer: str, table: pl.DataFrame) -> None:
        """Store the texts of a tokenizer's tokens, unless the bank has them; `extract` does so.

        `table` has the columns of `tokens`: one row per token.

        Raises
        ------
        UsageError
            A column is missing or has another type, or a token occurs twice.
        """
        self._require_writable()
        token_texts.write_tokens(self.path, tokenizer, table)

    def put_head(self, head: OutputHead) -> str:
        """Store an LM head, unless it is stored, and return its digest.

        A deposit at keep level `hidden` names its head in `DepositSpec.heads`, so store the head
        first. Any number of writers may store the same head. It is durable when this returns.

        Raises
        ------
        DamagedError
            The stored head is damaged.
        DiskSpaceError
            The disk is full; no part of the head is left.
        UsageError
            The bank is at a URL.
        """
        self._require_writable()
        return put_head(self.path, head)

    def head(self, digest: str) -> OutputHead:
        """A stored LM head, verified against its digest (64 hex digits), or DamagedError."""
        return StoredHead.open(self.path, digest).read()

    def missing_options(self, deposit: Deposit) -> OptionTokens | None:
        """Option tokens of committed queries that a deposit's scores do not list, or None.

        `rescore` adds them from the stored log-probabilities.
        """
        return missing_options(self.path, deposit)

    def rescore(self) -> list[Deposit]:
        """Score options that were named after their deposits were made; return those deposits.

        Scores come from full rows or states; deposits without either stay as they are. Ranks among
        rounded rows are intervals, with `exact` = False. A second call changes nothing.

        Raises
        ------
        UsageError
            The bank is at a URL.
        DamagedError
            Rows are damaged; the deposit is not scored.
        """
        from logitbank.store.change.rescore import rescore_all

        self._require_writable()
        return rescore_all(self.path, self.deposits())

    def deposits(self, checkpoint: CheckpointId | None = None) -> list[Deposit]:
        """All deposits, or those of one checkpoint, by model, run and training step.

        A filtered bank has the deposits of the filter's model and tokenizer, under the bank's name.
        """
        if self.filter is None:
            return catalog.deposits(self.path, checkpoint)
        found = filtered_deposits(self.path, self.filter, self.name)
        return [deposit for deposit in found if checkpoint in (None, deposit.checkpoint)]

    def filtered(self, by: Filter | str | Path, *, name: str | None = None) -> Self:
        """This bank seen through a debiasing filter, or through a file that contains one.

        Nothing is copied, and the bank becomes read-only. Deposits of other models are left out.
        Deposits of a next-sentence head, which has two outputs, do not change.

        Parameters
        ----------
        name
            Name of the filtered model; by default the model's name and a description of the filter.

        Raises
        ------
        UsageError
            The filter is for another model or tokenizer, `name` is a model of the bank, or the bank
            is filtered already.
        """
        self.require_unfiltered()
        by = by if isinstance(by, Filter) else Filter.load(by)
        by, name = fitted(by, self.path, catalog.deposits(self.path), name)
        return replace(self, filter=by, name=name)

    def require_unfiltered(self) -> None:
        """Refuse a filtered bank with a UsageError."""
        if self.filter is not None:
            raise UsageError(
                f"{self.name!r} is seen through a filter already; use the bank itself, {self.path}"
            )

    def _require_writable(self) -> None:
        self.require_unfiltered()
        copies.require_folder(self.path)

    def begin(self, spec: DepositSpec) -> DepositWriter:
        """Create a deposit, or reopen one to add its missing blocks.

        An existing deposit keeps its own layout, which may have other blocks and keep more. Use the
        layout of the writer.

        Raises
        ------
        UsageError
            The spec does not fit its query set in this bank.
        BankError
            The deposit exists with other weights, tokenizer, vocabulary, dtype or compute_dtype.
        KeepLevelError
            The deposit exists and keeps less.
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
        """Deposit logits that were computed elsewhere, and seal. A second call changes nothing.

        Parameters
        ----------
        logits
            (q, v) of float16, float32 or float64: one row per query of the query set, one column
            per output of the head, padding included. Raw, natural units; float64 is rounded.
        checkpoint, query_set, keep, dtype
            Checkpoint and query set of the logits, how much to keep (full, topk:K or options), and
            the stored precision.
        vocab_entries
            Entries of the tokenizer, if the head has more outputs.
        provenance
            How the logits were made: digests `weights` and `tokenizer`, `engine`, anything else.
            Without `weights`, the digest of the array identifies it.

        Raises
        ------
        UsageError
            The shape, dtype or keep level is invalid, or a logit is not finite; names the query
            row.
        BankError
            The bank has other logits of this checkpoint and query set.
        KeepLevelError
            The deposit exists and keeps less.
        """
        from logitbank.store.read.arrays import check_array, deposit_array

        check_array(logits, queries=query_tables.query_count(self.path, query_set))
        queries, vocab = logits.shape
        keep = Keep.parse(keep, accepted=KEEP_WITHOUT_STATES) if isinstance(keep, str) else keep
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
        """One query set, verified against its name."""
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
        about = summary_or_error(lambda: bank_line(self.deposits(), self.prompt_sets))
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
        """Digests of the tokenizers whose token texts the bank stores."""
        return sorted({file.name for file in token_texts.tokens_files(self.path)})

    def tokens(self, of: str | None = None) -> pl.DataFrame:
        """The texts of a tokenizer's tokens.

        Parameters
        ----------
        of
            A prompt set, or the digest of a tokenizer; needed if the bank has several tokenizers.

        Returns
        -------
        One row per token, ascending: `token`, its `text` (bytes that are not UTF-8 are shown as
        `\\xe2`), `is_text` (false if there are such bytes), and `special`.

        Raises
        ------
        AbsentError
            The bank has no texts of this tokenizer, or no such prompt set.
        UsageError
            The bank has several tokenizers; names them.
        """
        return token_texts.tokens(self.path, of)

    def option_tokens(self, query_set: str) -> OptionTokens:
        """The option tokens of each query of a query set, of all prompts."""
        queries = query_tables.query_count(self.path, query_set)
        return prompt_tables.option_tokens(
            prompt_tables.named_tokens(self.path, query_set), queries=queries
        )

    def deposits_of(self, prompts: str) -> list[Deposit]:
        """Deposits of any query set that a prompt set points to, in the order of `deposits`."""
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

        An option of several tokens has one row per token: its pieces.

        Parameters
        ----------
        prompts
            Name of the prompt set.
        models, runs, steps
            Keep these checkpoints; all if None. Steps are numbers, with None for the release, or a
            text as in `--steps`: `last`, `log`, `0:100:10`, `0,512,release`. A text selects steps
            of each model and run on its own.
        token_text
            Add a column `token_text` after `token`, as in `tokens`; null for classes of a
            next-sentence head.
        whole_options
            One row per option: logprob is the sum over its pieces (null if one has no score),
            continuation is the joined text, and pieces is their number.
        filter
            Debiasing filter, or its file: scores of its model after the filter.

        Returns
        -------
        Columns model, run, run_seed, step, those of the prompts, logit, logsumexp, logprob (nats,
        float64: logit − logsumexp), rank, ties, padding_above, padding_ties, exact; rows in no
        fixed order. Whole options have pieces and logprob in place of the columns of single tokens.

        Raises
        ------
        BankError
            The bank has no such prompts or deposits, or a deposit with full rows was scored before
            an option was named: see `rescore`.
        DamagedError
            Scores are missing or damaged, or were not copied when a bank at a URL was opened.
        AbsentError
            The bank has no token texts.
        SuiteError
            A text selects no available step.
        UsageError
            `token_text` and `whole_options` are both set, or prompts have a column `pieces`.
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
        """Refuse deposits with full rows without scores of options that were named later.

        Parameters
        ----------
        prompts
            Name of a prompt set.
        of
            Rows of its table, if not all matter.

        Raises
        ------
        BankError
            Scores are missing; `Bank.rescore` computes them from full rows.
        """
        table = self.prompts(prompts) if of is None else of
        require_scored(self.path, prompts, table, [deposit.stored for deposit in deposits])

    def without_scores(self, prompts: str, deposits: Sequence[Deposit]) -> list[Deposit]:
        """Deposits without full rows and without any score of a prompt set that was named later."""
        lacking = have_no_score(
            self.path, self.prompts(prompts), [deposit.stored for deposit in deposits]
        )
        return [deposit for deposit, lacks in zip(deposits, lacking, strict=True) if lacks]

    def frames(self) -> dict[str, pl.LazyFrame]:
        """Four lazy frames: checkpoints, prompts, options and scores; see `docs/analyse.md`.

        A bank without scores has no frame of scores.

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
        return frames(by_name, self.deposits(), self.info, self.require_scored)

    def sql(self, query: str) -> pl.LazyFrame:
        """The lazy result of a SELECT over `frames`, in the SQL of Polars.

        Raises
        ------
        UsageError
            The query is invalid, names an unknown table or column, or reads files.
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
        logprobs (checkpoint, query, token) float32 nats, of deposits with full rows; NaN if a block
        is not committed, or beyond the outputs of a smaller model. logsumexp (checkpoint, query).
        `checkpoint` is indexed by model, run and step (−1 for a release):
        `.sel(model="pythia-160m", step=512)`. The prompts' column `row` points into `query`.
        `attrs["without_full_rows"]` names the checkpoints that are left out because they keep less.

        Raises
        ------
        MissingExtraError
            xarray is not installed.
        BankError
            The bank has no such prompt set, or no deposit of it with full rows.
        UsageError
            Several query sets with full rows have prompts of this name; names them.
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
        deposit), sealed, keep, dtype, engine, bytes (of committed objects; the first deposit that
        names a head includes its bytes).
        """
        return pl.DataFrame(info_rows(self.path, self.deposits()), schema=INFO, orient="row")

    def provenance(self) -> pl.DataFrame:
        """How the deposits were made, with equal values in one row; `info --provenance` prints it.

        Returns
        -------
        One row per model, run, field and value: columns model, run, field (`engine`,
        `source.revision`, …), value (text; anything else as JSON), deposits (number), first_step,
        last_step.
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
    """Open a bank as `Bank.open` does; return a bank that is open already."""
    if isinstance(path, Bank):
        return path
    return Bank.open(path, models=models, steps=steps, prompts=prompts, rows=rows)


def open_unfiltered(path: str | Path | Bank, *, rows: bool = False) -> Bank:
    """Open a bank as `Bank.open` does; refuse a filtered bank with a UsageError."""
    bank = open_bank(path, rows=rows)
    bank.require_unfiltered()
    return bank


def require_as_written(root: Path) -> None:
    """Refuse a bank whose `zarr.json` does not have its own digest."""
    try:
        verified.document(root, *zarrays.ATTRIBUTES)
    except DamagedError as error:
        raise DamagedError(
            f"{root} is not what was written there: title, licence, citation or sources may have"
            " changed. Take it from another copy of the bank, or write what it says now, right or"
            " not, with `logitbank describe`"
        ) from error

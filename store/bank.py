"""The bank: one folder with the logits of many checkpoints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from logitbank.errors import BankError, BankFormatError, DamagedError, UsageError
from logitbank.notebook import printable, summary_or_error
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import COMMITTED_OBJECTS, Deposit
from logitbank.store.deposits.writer import DepositWriter
from logitbank.store.files import copies, documents, objects, verified
from logitbank.store.format import zarrays
from logitbank.store.format.about import checked_fields
from logitbank.store.format.attributes import QUERY_SET
from logitbank.store.format.heads import OutputHead
from logitbank.store.format.layout import DepositSpec, Layout
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import (
    FORMAT_VERSION,
    CheckpointId,
    Dtype,
    Json,
    Keep,
    check_folder,
)
from logitbank.store.heads.put import put_head
from logitbank.store.read.choose import Names, Steps, checkpoints_chosen, require_scored_models
from logitbank.store.read.info import bank_line, info
from logitbank.store.read.missing_scores import require_scored
from logitbank.store.read.scan import PromptRows, by_option, scan
from logitbank.store.share.local import ensure_local
from logitbank.store.share.urls import bank_url, require_new_folder, shown_url
from logitbank.store.steps import Step, in_order
from logitbank.store.tables import prompt_tables, query_tables, token_texts
from logitbank.version import __version__
from logitbank.wording import KEEP_WITHOUT_STATES

if TYPE_CHECKING:
    import xarray
    import zarr


@dataclass(frozen=True, repr=False)
class Bank:
    """A bank in a local folder, or a local copy of a bank at a URL: `create` or `open` one."""

    path: Path
    """Folder of the bank, or of the copy of a bank at a URL."""
    attributes: dict[str, Any] = field(compare=False)
    """Format version, title, license, citation, and the sources of a merged bank."""
    url: str | None = field(default=None, kw_only=True)
    """URL that the bank was opened at, without a password; None for a folder."""
    copied: Mapping[str, Any] = field(default_factory=dict, compare=False, kw_only=True)
    """Models and steps whose scores a copy of a bank at a URL contains, as given to `open`."""

    @classmethod
    def create(
        cls, path: str | Path, *, title: str = "", license: str = "", citation: str = ""
    ) -> Self:
        """Make an empty bank.

        Raises
        ------
        UsageError
            The path exists and is not an empty folder, or it is a URL.
        """
        path = require_new_folder(path)
        exists = f"{path} already exists. Open it with Bank.open, or choose another folder."
        if objects.is_occupied(path):
            raise UsageError(exists)
        about = checked_fields({"title": title, "license": license, "citation": citation})
        objects.make_root(path)
        metadata = zarrays.root_metadata({**about, "written_by": __version__})
        if not objects.write_new(path / "zarr.json", metadata):
            raise UsageError(exists)
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
            `prompts=[]` copies no score. A folder ignores all three.
        rows
            Whether to copy full rows, states and heads also.

        Raises
        ------
        BankFormatError
            The path has no bank, or a bank of another format version.
        RemoteError
            The URL cannot be reached, or access is denied.
        DamagedError
            The index or `zarr.json` is damaged.
        MissingExtraError
            The extra `remote` is not installed.
        """
        shown = shown_url(path)
        if url := bank_url(path):
            path = ensure_local(url, models=models, steps=steps, prompts=prompts, rows=rows)
        path = Path(path)
        if not path.is_dir():
            found = "is a file, not a folder" if path.exists() else "does not exist"
            raise BankFormatError(
                f"There is no bank at {path}: it {found}. Check the path, or create a bank with"
                " `logitbank extract`."
            )
        copied = {} if url is None else {"models": models, "steps": steps}
        return cls(path, _read_root(path), url=shown, copied=copied)

    def add_query_set(self, query_set: QuerySet) -> str:
        """Store a query set, unless it is stored, and return its name."""
        require_writable(self)
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
        require_writable(self)
        return prompt_tables.write_prompts(self.path, name, table)

    def add_tokens(self, tokenizer: str, table: pl.DataFrame) -> None:
        """Store the texts of a tokenizer's tokens, unless the bank has them; `extract` does so.

        `table` has the columns of `tokens`: one row per token.

        Raises
        ------
        UsageError
            A column is missing or has another type, or a token occurs twice.
        """
        require_writable(self)
        token_texts.write_tokens(self.path, tokenizer, table)

    def put_head(self, head: OutputHead) -> str:
        """Store an LM head, unless it is stored, and return its digest.

        Store the head before a deposit at keep level `hidden`, which names it in
        `DepositSpec.heads`. Any number of writers may store the same head. It is durable when this
        returns.

        Raises
        ------
        DamagedError
            The stored head is damaged.
        DiskSpaceError
            The disk is full; no part of the head stays.
        UsageError
            The bank is at a URL.
        """
        require_writable(self)
        return put_head(self.path, head)

    def rescore(self) -> list[Deposit]:
        """Score options that were added after their deposits were made; return those deposits.

        Scores come from full rows or states; deposits without either do not change. `exact` is
        False: for rounded rows, the true rank is between `rank` and `rank` + `ties`. A second call
        changes nothing.

        Raises
        ------
        UsageError
            The bank is at a URL.
        DamagedError
            Rows are damaged; the deposit is not scored.
        """
        from logitbank.store.change.rescore import rescore_all

        require_writable(self)
        return rescore_all(self.path, self.deposits())

    def deposits(
        self, checkpoint: CheckpointId | None = None, *, prompts: str | None = None
    ) -> list[Deposit]:
        """All deposits, or those of one checkpoint or prompt set, by model, run and step."""
        found = catalog.deposits(self.path, checkpoint)
        if prompts is None:
            return found
        query_sets = prompt_tables.linked_query_sets(self.prompts(prompts))
        return [deposit for deposit in found if deposit.query_set in query_sets]

    def begin(self, spec: DepositSpec) -> DepositWriter:
        """Create a deposit, or reopen one to add its missing blocks.

        An existing deposit keeps its layout, which may have other blocks and keep more. Use the
        layout of the writer.

        Raises
        ------
        UsageError
            The spec does not match its query set in this bank.
        BankError
            The deposit exists with other weights, tokenizer, vocabulary, dtype, compute_dtype or
            engine.
        KeepLevelError
            The deposit exists and keeps less.
        DamagedError
            The head of its states is missing or has another shape.
        """
        require_writable(self)
        return DepositWriter(catalog.open_or_create(self.path, spec))

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
        """Store logits in one array as a complete deposit. A second call changes nothing.

        Parameters
        ----------
        logits
            (q, v) of float16, float32 or float64, or a tensor of torch: one row per query of the
            query set, one column per output of the head, padding included. Raw, natural units;
            float64 is rounded.
        checkpoint, query_set, keep, dtype
            Checkpoint and query set of the logits, how much to keep (full, topk:K or options), and
            the stored precision.
        vocab_entries
            Entries of the tokenizer, if the head has more outputs.
        provenance
            How the logits were made: digests `weights` and `tokenizer`, `engine`, and others.
            Without `weights`, the digest of the array identifies them.

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
        from logitbank.store.read.arrays import as_array, check_array, deposit_array

        logits = as_array(logits)
        check_array(logits, queries=query_tables.query_count(self.path, query_set))
        queries, vocab = logits.shape
        keep = Keep.parse(keep, accepted=KEEP_WITHOUT_STATES) if isinstance(keep, str) else keep
        tokenizer = query_tables.query_set_tokenizer(self.path, query_set)
        spec = DepositSpec(
            checkpoint,
            query_set,
            Layout.plan(queries=queries, vocab=vocab, dtype=dtype, keep=keep),
            vocab if vocab_entries is None else vocab_entries,
            {"engine": "arrays", "tokenizer": tokenizer, **(provenance or {})},
        )
        return deposit_array(self.path, logits, spec, self.begin)

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

    @property
    def address(self) -> str:
        """Its URL or folder."""
        return self.url or str(self.path)

    def prompts(self, name: str) -> pl.LazyFrame:
        """All prompts of a prompt set, one row per prompt × order × piece × option."""
        return prompt_tables.scan_prompts(self.path, name)

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
            The bank has several tokenizers; the error names them.
        """
        return token_texts.tokens(self.path, of)

    def scan(
        self,
        prompts: str,
        *,
        models: Names = None,
        runs: Names = None,
        steps: Steps = None,
        whole_options: bool = False,
    ) -> pl.LazyFrame:
        """One row per checkpoint × prompt × option of a prompt set, from committed blocks only.

        An option of several tokens has one row per token.

        Parameters
        ----------
        prompts
            Name of the prompt set.
        models, runs, steps
            Keep these checkpoints; all if None. Steps are numbers, with None for the release, or a
            text as in `--steps`: `last`, `log`, `0:100:10`, `0,512,release`. A text selects among
            the steps of each model and run.
        whole_options
            One row per option: logprob is the sum over its tokens (null if one has no score),
            continuation is the joined text, and pieces is the number of tokens.

        Returns
        -------
        Columns model, run, run_seed, step, those of the prompts, logit, logsumexp, logprob (nats,
        float64: logit − logsumexp), rank, ties, padding_above, padding_ties, exact; rows in no
        fixed order. Whole options have pieces and logprob instead of the columns of single tokens.

        Raises
        ------
        BankError
            The bank has no such prompts or deposits, or a deposit with full rows was scored before
            an option was added: see `rescore`.
        DamagedError
            Scores are missing or damaged, or were not copied when a bank at a URL was opened.
        SuiteError
            A text selects no available step.
        UsageError
            Options are summed, and the prompts have a column `pieces`.
        """
        table = self.prompts(prompts)
        deposits = self.deposits(prompts=prompts)
        if not deposits:
            raise BankError(
                f"{self.address} has no deposit of prompt set {prompts!r} yet. Run"
                " `logitbank extract`."
            )
        require_scored_models(prompts, models, deposits, self.models)
        deposits = checkpoints_chosen(deposits, models=models, runs=runs, steps=steps)
        require_scored(self.path, prompts, deposits)
        scores = scan(PromptRows(table), deposits)
        if not whole_options:
            return scores
        query_sets = {d.query_set for d in deposits}
        tokenizers = {
            name: query_tables.query_set_tokenizer(self.path, name) for name in query_sets
        }
        return by_option(scores, table, tokenizers)

    def sql(self, query: str) -> pl.LazyFrame:
        """The lazy result of a SELECT, in the SQL of Polars.

        Its tables are checkpoints, prompts, options and scores; see `docs/analyse.md`. A copy of a
        bank at a URL has the scores that it was opened with.

        Raises
        ------
        UsageError
            The query is invalid, or names an unknown table or column.
        BankError
            The bank has no prompts, or the query reads scores and the bank has none.
        """
        from logitbank.store.read import sql

        if not (names := self.prompt_sets):
            raise BankError(f"{self.address} has no prompts yet. Run `logitbank extract`.")
        texts = token_texts.token_texts(self.path)
        prompts = {name: self.prompts(name).with_columns(texts) for name in names}

        def scans() -> dict[str, pl.LazyFrame]:
            chosen = checkpoints_chosen(self.deposits(), **self.copied)
            scored = {deposit.query_set for deposit in chosen}
            if not scored:
                raise BankError(f"{self.address} has no scores yet. Run `logitbank extract`.")
            return {
                name: self.scan(name, **self.copied).with_columns(texts)
                for name, table in prompts.items()
                if not scored.isdisjoint(prompt_tables.linked_query_sets(table))
            }

        return sql.sql(sql.tables(prompts, scans, self.info), query)

    def to_xarray(self, prompts: str) -> "xarray.Dataset":
        """The complete deposits of a prompt set as one dataset, read when indexed.

        Parameters
        ----------
        prompts
            Name of a prompt set, or of the query set that its column `query_set` names.

        Returns
        -------
        logprobs (checkpoint, query, token) float32 nats, of complete deposits with full rows; NaN
        beyond the outputs of a smaller model. logsumexp (checkpoint, query). `checkpoint` is
        indexed by model, run and step (−1 for a release): `.sel(model="pythia-160m", step=512)`.
        The prompts' column `row` points into `query`. `attrs["without_full_rows"]` names the
        excluded checkpoints, which keep less or are incomplete.

        Raises
        ------
        MissingExtraError
            xarray is not installed.
        BankError
            The bank has no such prompt set, or no complete deposit of it with full rows.
        UsageError
            Several query sets with full rows have prompts of this name; the error names them.
        """
        from logitbank.store.read.xarray_view import xarray_view

        if QUERY_SET.fullmatch(prompts):
            return xarray_view([d for d in self.deposits() if d.query_set == prompts], prompts)
        return xarray_view(self.deposits(prompts=prompts), prompts)

    @property
    def group(self) -> "zarr.Group":
        """The bank as a read-only Zarr group: `bank.group.tree()` shows all groups and arrays.

        Its deposits are those of `Deposit.group`. A copy of a bank at a URL contains the arrays
        that were requested with `rows`.
        """
        from logitbank.store.read.zarr_view import zarr_group

        return zarr_group(self.path, COMMITTED_OBJECTS)

    def info(self) -> pl.DataFrame:
        """One row per deposit, by model, run and training step.

        Returns
        -------
        Columns model, run, step, query_set, queries, committed (queries), blocks (of the whole
        deposit), sealed, keep, dtype, engine, bytes (of committed objects; the first deposit that
        names a head includes its bytes).
        """
        return info(self.path, self.deposits())


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


def require_writable(bank: Bank) -> None:
    """Refuse the copy of a bank at a URL with a UsageError."""
    copies.require_folder(bank.path)


def _read_root(path: Path) -> dict[str, Any]:
    """The attributes of the bank in a folder, verified."""
    root = objects.plain_path(path, "zarr.json")
    advice = "Copy zarr.json from another copy of the bank."
    try:
        attributes: dict[str, Any] = documents.read_json(root)["attributes"]["logitbank"]
        version = attributes["format"]
    except FileNotFoundError as error:
        if catalog.has_parts(path):
            raise BankFormatError(
                f"{path} has parts of a bank but no zarr.json: a copy was interrupted. {advice}"
            ) from error
        raise BankFormatError(
            f"{path} is not a bank: it has no zarr.json. Check the path."
        ) from error
    except DamagedError as error:
        raise DamagedError(
            f"{root} is damaged, so the format of the bank is unknown. {advice}"
        ) from error
    except (KeyError, TypeError) as error:
        raise BankFormatError(
            f"{path} is not a bank: its zarr.json names no logitbank format. Check the path."
        ) from error
    if version != FORMAT_VERSION:
        raise BankFormatError(
            f"{path} has format {version!r}, but logitbank {__version__} reads format"
            f" {FORMAT_VERSION}. Use logitbank {attributes.get('written_by', '?')} or later."
        )
    try:
        verified.document(root, *zarrays.ATTRIBUTES)
    except DamagedError as error:
        raise DamagedError(
            f"{root} was changed: title, license, citation or sources may be wrong. Copy it from"
            " another copy of the bank, or accept the change with `logitbank describe`."
        ) from error
    return attributes

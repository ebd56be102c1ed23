"""The bank: one folder with the logits of many checkpoints. Hides where and how they lie."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import polars as pl

from logitbank.errors import AbsentError, BankError, BankFormatError, DamagedError, UsageError
from logitbank.store.deposits import places, tables
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.writer import DepositWriter
from logitbank.store.files import checked, objects
from logitbank.store.format import commits, zarrays
from logitbank.store.format.commits import Committed
from logitbank.store.format.schema import (
    FORMAT_VERSION,
    INFO,
    VIEW,
    CheckpointId,
    DepositSpec,
    Dtype,
    Json,
    Keep,
    OptionTokens,
    QuerySet,
)
from logitbank.store.read import scan as scanning
from logitbank.store.remote import mirror
from logitbank.store.remote.urls import require_folder, url_of

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Bank:
    """A bank of format 1 in a local folder, or at a URL. `create` or `open` one."""

    path: Path
    attributes: dict[str, Any] = field(compare=False)
    """Format version, title, licence, citation, and the sources that a merge names."""

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
        path = require_folder(path)
        taken = f"{path} is there already; open it with Bank.open, or choose another folder"
        if objects.holds_something(path):
            raise UsageError(taken)
        objects.make_root(path)
        about = {"title": title, "licence": licence, "citation": citation}
        metadata = zarrays.root_metadata({**about, "written_by": _own_version()})
        if not objects.write_new(path / "zarr.json", metadata):
            raise UsageError(taken)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a bank in a folder, or read one at a URL: https://…, s3://…, hf://datasets/….

        Of a bank at a URL, what is asked for is fetched, checked, and kept in a cache: the folder
        `LOGITBANK_CACHE`, else in the user's. Full rows are read in place and not kept.

        Raises
        ------
        BankFormatError
            Nothing is there, it is no bank, or one of another format version.
        RemoteError
            The URL cannot be reached, or refuses.
        DamagedError
            Its index is none; or its attributes are not what was written there.
        MissingExtraError
            The extra `remote` is not installed.
        """
        if url := url_of(path):
            path = mirror.open_mirror(url)
        path = Path(path)
        if not path.exists():
            raise BankFormatError(
                f"there is no bank at {path}; check the path, or make one with `logitbank extract`"
            )
        if not path.is_dir():
            raise BankFormatError(f"{path} is a file, and a bank is a folder; check the path")
        if (path / VIEW).is_file():
            raise BankFormatError(
                f"{path} is a view of a bank; `logitbank.open`, `info`, `query` and `analyze` take"
                " it, and everything else takes the bank itself"
            )
        root = objects.plain_path(path, "zarr.json")
        mirror.ensure_here(root)
        try:
            own = objects.read_json(root)["attributes"]["logitbank"]
            found = own["format"]
        except FileNotFoundError as error:
            raise BankFormatError(
                f"{path} is a folder but no bank: it has no zarr.json; check the path"
            ) from error
        except (DamagedError, KeyError, TypeError) as error:
            raise BankFormatError(
                f"{path} is a folder but no bank: its zarr.json has no logitbank format;"
                " check the path"
            ) from error
        if found != FORMAT_VERSION:
            raise BankFormatError(
                f"{path} is a bank of format {found!r}; this is logitbank {_own_version()}, which"
                f" reads format {FORMAT_VERSION}: use logitbank >= {own.get('written_by', '?')}"
            )
        require_as_written(root)
        return cls(path, own)

    def add_query_set(self, query_set: QuerySet) -> str:
        """Store a query set and return its name; nothing happens where it is there."""
        mirror.require_own(self.path)
        return tables.write_query_set(self.path, query_set)

    def query_sets(self) -> dict[str, QuerySet]:
        """All query sets, by name."""
        return {name: self.query_set(name) for name in tables.query_set_names(self.path)}

    def query_set(self, name: str) -> QuerySet:
        """One query set, its content checked against its name."""
        return tables.read_query_set(self.path, name)

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
        if not name or name != name.strip():
            raise UsageError(f"prompt set {name!r} is no name; give a non-blank one")
        mirror.require_own(self.path)
        return tables.write_prompts(self.path, name, table)

    def prompt_sets(self) -> list[str]:
        """Names of the prompt sets."""
        return sorted({file.name for file in tables.prompt_files(self.path)})

    def prompts(self, name: str) -> pl.LazyFrame:
        """All prompts of a prompt set, one row per prompt × order × piece × option."""
        return tables.scan_prompts(self.path, name)

    def option_tokens(self, query_set: str) -> OptionTokens:
        """The tokens that any prompt names for each query of a query set."""
        queries = tables.query_count(self.path, query_set)
        return tables.option_tokens(tables.named_tokens(self.path, query_set), queries=queries)

    def lacking_options(self, deposit: Deposit) -> OptionTokens | None:
        """Tokens that prompts name for committed queries of a deposit and its scores do not list.

        None where nothing lacks. `rescore` adds them from the stored log-probabilities.
        """
        layout = deposit.layout
        blocks = pl.Series(sorted(deposit.committed()), dtype=pl.Int32)
        listed = deposit.scores().filter(pl.col("kind") == "option").select("query", "token")
        pairs = (
            tables.named_tokens(self.path, deposit.query_set)
            .lazy()
            .filter((pl.col("row") // layout.block_rows).is_in(blocks.implode()))
            .join(listed, left_on=["row", "token"], right_on=["query", "token"], how="anti")
            .sort("row", "token")
            .collect()
        )
        return None if pairs.is_empty() else tables.option_tokens(pairs, queries=layout.queries)

    def rescore(self) -> list[Deposit]:
        """Score what prompts name and no deposit lists yet, from full rows; the same again is free.

        For options that were named after logits were deposited. Where rows are rounded their ranks
        are intervals, flagged `exact` = False. Deposits without full rows stay as they are.

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
        from logitbank.store.change.rescore import rescore_bank

        return rescore_bank(self)

    def deposits(self, checkpoint: CheckpointId | None = None) -> list[Deposit]:
        """All deposits, or those of one checkpoint, by model, run and training step."""
        return places.deposits(self.path, checkpoint)

    def deposits_of(self, prompts: str) -> list[Deposit]:
        """Deposits of any query set that a prompt set points into, in the order of `deposits`."""
        wanted = tables.query_sets_of(self.prompts(prompts))
        return [deposit for deposit in self.deposits() if deposit.query_set in wanted]

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
        mirror.require_own(self.path)
        deposit = places.open_or_create(self.path, spec)
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
        from logitbank.store.read.arrays import deposit_array

        return deposit_array(
            self,
            logits,
            checkpoint=checkpoint,
            query_set=query_set,
            keep=Keep.parse(keep) if isinstance(keep, str) else keep,
            dtype=dtype,
            vocab_entries=vocab_entries,
            provenance=provenance or {},
        )

    def scan(
        self,
        prompts: str,
        *,
        models: Collection[str] | str | None = None,
        runs: Collection[str] | str | None = None,
        steps: Collection[int | None] | int | None = None,
    ) -> pl.LazyFrame:
        """One row per checkpoint × prompt × option of a prompt set, from committed blocks only.

        Parameters
        ----------
        prompts
            Name of the prompt set.
        models, runs, steps
            Keep these checkpoints; all if None.

        Returns
        -------
        Columns model, run, run_seed, step, those of the prompts, logit, logsumexp, logprob (nats,
        float64: logit − logsumexp), rank, ties, padding_above, padding_ties, exact; rows in no
        fixed order.

        Raises
        ------
        BankError
            The bank has no such prompts, or no deposit of them by such checkpoints; or one with
            full rows was scored before an option of them was named: see `rescore`.
        """
        table = self.prompts(prompts)
        deposits = self.deposits_of(prompts)
        if not deposits:
            raise BankError(
                f"{self.path} has no deposit of prompt set {prompts!r} yet; run `logitbank extract`"
            )
        for name, values in (("model", models), ("run", runs), ("step", steps)):
            deposits = among(deposits, name, values)
        if mirror.mirror_of(self.path):  # all at once, rather than one after the other
            mirror.ensure_here(*(part for d in deposits for part in d.score_files()))
        self._require_scored(prompts, table, deposits)
        return scanning.scan(table, deposits)

    def _require_scored(self, name: str, table: pl.LazyFrame, deposits: Sequence[Deposit]) -> None:
        from logitbank.store.read.lacking import require_scored

        require_scored(self.path, name, table, deposits)

    def frames(self) -> dict[str, pl.LazyFrame]:
        """Everything as four lazy frames: checkpoints, prompts, options and scores.

        `docs/tables.md` has their columns. Without a score there is no frame of scores.

        Raises
        ------
        BankError
            The bank has no prompts.
        """
        from logitbank.store.read.sql import frames

        return frames(self)

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

        return sql(self, query, allow_files=allow_files)

    def to_xarray(self, query_set: str) -> "xarray.Dataset":
        """The checkpoints of a query set side by side, read when indexed.

        Returns
        -------
        logprobs (checkpoint, query, token) float32 nats, of deposits that keep full rows; NaN
        where a block is not committed, or a model has fewer outputs than the widest. logsumexp
        (checkpoint, query). Coordinates model, run, step (−1 for a release) on `checkpoint`.

        Raises
        ------
        MissingExtraError
            xarray is not installed.
        BankError
            No deposit of this query set keeps full rows.
        """
        from logitbank.store.read.side_by_side import side_by_side

        return side_by_side([d for d in self.deposits() if d.query_set == query_set], query_set)

    def info(self) -> pl.DataFrame:
        """One row per deposit, by model, run and training step.

        Returns
        -------
        Columns model, run, step, query_set, queries, committed (queries), blocks (of the whole
        deposit), sealed, keep, dtype, engine, bytes (of committed objects).
        """
        return pl.DataFrame([_about(d) for d in self.deposits()], schema=INFO, orient="row")

    def provenance(self) -> pl.DataFrame:
        """How the deposits were made, equal values together; `info --provenance` on paper.

        Returns
        -------
        One row for each model, run, field and value: columns model, run, field (`engine`,
        `source.revision`, …), value (text; other than text as JSON), deposits (that have it),
        first_step, last_step.
        """
        from logitbank.store.read.provenance import provenance_table

        return provenance_table(self)


def require_as_written(root: Path) -> None:
    """Refuse a bank's own `zarr.json` if its digest is not its own; other formats may have none."""
    try:
        checked.document(root, *zarrays.ATTRIBUTES)
    except DamagedError as error:
        raise DamagedError(
            f"{root} is not what was written there: title, licence, citation or sources may have"
            " changed. Take it from another copy of the bank, or write what it says now, right or"
            " not, with `logitbank describe`"
        ) from error


def among(deposits: list[Deposit], name: str, values: object) -> list[Deposit]:
    """Deposits whose checkpoint has one of these values."""
    if values is None:
        return deposits
    chosen = {values} if isinstance(values, str | int) else set(cast(Collection[object], values))
    found = [d for d in deposits if getattr(d.checkpoint, name) in chosen]
    if not found:
        there = sorted({str(getattr(d.checkpoint, name)) for d in deposits})
        asked = ", ".join(map(str, chosen)) or "none"
        raise AbsentError(f"no deposit has {name} {asked}; the bank has {', '.join(there)}")
    return found


def _about(deposit: Deposit) -> tuple[object, ...]:
    state, checkpoint, layout = deposit.state(), deposit.checkpoint, deposit.layout
    engine = deposit.spec.provenance.get("engine")
    return (
        checkpoint.model,
        checkpoint.run,
        checkpoint.step,
        deposit.query_set,
        layout.queries,
        sum(len(layout.rows(block)) for block in state.blocks),
        layout.blocks,
        state.sealed,
        str(layout.keep),
        layout.dtype,
        None if engine is None else str(engine),
        deposit.retrying(lambda state: _bytes(deposit, state)),
    )


def _bytes(deposit: Deposit, state: Committed) -> int:
    """Bytes of what the commits vouch for."""
    parts = [commits.digests(deposit.path, name) for name in state.names]
    return sum(digest.bytes for part in parts for digest in part.values())


def _own_version() -> str:
    try:
        return version("logitbank")
    except PackageNotFoundError:  # a source tree that is not installed
        return "0.1.0"

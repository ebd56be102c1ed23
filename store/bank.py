"""The bank: one folder with the logits of many checkpoints. Hides where and how they lie.

It is one file because the class is the front door: its methods are documentation first, and what
they do lies in modules of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from logitbank.errors import BankFormatError, DamagedError, UsageError
from logitbank.store.deposits import places
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.writer import DepositWriter
from logitbank.store.files import checked, documents, objects
from logitbank.store.format import zarrays
from logitbank.store.format.about import checked_fields
from logitbank.store.format.heads import OutputHead
from logitbank.store.format.layout import DepositSpec
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import (
    FORMAT_VERSION,
    CheckpointId,
    Dtype,
    Json,
    Keep,
    OptionTokens,
    check_folder,
)
from logitbank.store.heads.put import put_head
from logitbank.store.heads.stored import StoredHead
from logitbank.store.read.missing_scores import missing_options
from logitbank.store.read.readable import Readable
from logitbank.store.remote import fetching, mirror
from logitbank.store.remote.urls import require_folder, url_of
from logitbank.store.tables import prompt_tables, query_tables, token_texts
from logitbank.version import __version__
from logitbank.wording import KEPT_OF_LOGITS


@dataclass(frozen=True, repr=False)
class Bank(Readable):
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
        about = checked_fields({"title": title, "licence": licence, "citation": citation})
        objects.make_root(path)
        metadata = zarrays.root_metadata({**about, "written_by": __version__})
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
            Its index is none; or its `zarr.json` is no document, or not what was written there.
        MissingExtraError
            The extra `remote` is not installed.
        """
        if url := url_of(path):
            path = fetching.open_mirror(url)
        path = Path(path)
        if not path.exists():
            raise BankFormatError(
                f"there is no bank at {path}; check the path, or make one with `logitbank extract`"
            )
        if not path.is_dir():
            raise BankFormatError(f"{path} is a file, and a bank is a folder; check the path")
        root = objects.plain_path(path, "zarr.json")
        fetching.ensure_here(root)
        try:
            attributes = documents.read_json(root)["attributes"]["logitbank"]
            version = attributes["format"]
        except FileNotFoundError as error:
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
        return cls(path, attributes)

    def add_query_set(self, query_set: QuerySet) -> str:
        """Store a query set and return its name; nothing happens where it is there."""
        mirror.require_local(self.path)
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
        mirror.require_local(self.path)
        return prompt_tables.write_prompts(self.path, name, table)

    def add_tokens(self, tokenizer: str, table: pl.DataFrame) -> None:
        """Store what the tokens of a tokenizer say; nothing happens where the bank has it.

        `logitbank extract` does so. `table` has the columns of `tokens`: one row per token.

        Raises
        ------
        UsageError
            A column is not there or of another type, or a token is there twice.
        """
        mirror.require_local(self.path)
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
        mirror.require_local(self.path)
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

        return rescore_all(self.path, self.deposits())

    def deposits(self, checkpoint: CheckpointId | None = None) -> list[Deposit]:
        """All deposits, or those of one checkpoint, by model, run and training step."""
        return places.deposits(self.path, checkpoint)

    def _as_stored(self, deposits: Sequence[Deposit]) -> Sequence[Deposit]:
        return deposits

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
        mirror.require_local(self.path)
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
            logits,
            self.begin,
            queries=self.query_set(query_set),
            options=self.option_tokens(query_set),
            checkpoint=checkpoint,
            query_set=query_set,
            keep=Keep.parse(keep, accepted=KEPT_OF_LOGITS) if isinstance(keep, str) else keep,
            dtype=dtype,
            vocab_entries=vocab_entries,
            provenance=provenance or {},
        )


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

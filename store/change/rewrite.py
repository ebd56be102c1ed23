"""Write a bank with the changed results of another one: its tables, then deposits by blocks.

`shrink`, filters and erasers are calls of these functions.
"""

import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import replace

import polars as pl

from logitbank.store.bank import Bank
from logitbank.store.change.rescore import option_scores
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format.index import is_group, object_deposit, object_head
from logitbank.store.format.layout import BlockData, DepositSpec, Layout
from logitbank.store.format.schema import Json, Keep
from logitbank.store.heads.stored import FOLDER as HEADS
from logitbank.store.progress import Advance
from logitbank.store.read.missing_scores import missing_options
from logitbank.store.share.copying import Part, copy
from logitbank.store.share.selection import chosen
from logitbank.store.share.targets import Folder, Source


def new_bank(
    source: Bank, target: Folder, models: Collection[str], heads: Collection[str] = ()
) -> Bank:
    """The bank in a folder, new or of an earlier call, with the tables of the source.

    Parameters
    ----------
    models
        Models whose results follow: their citations are recorded.
    heads
        Digests of the heads to copy.
    """
    owners, group = {None, *(f"{HEADS}/{digest}" for digest in heads)}, f"{HEADS}/zarr.json"
    tables = {
        path: value
        for path, value in chosen(source.path).items()
        if object_deposit(path) is None
        and object_head(path) in owners
        and (not is_group(path) or (path == group and heads))
    }
    copy([Part(Source(source.path), tables, models)], target)
    return Bank.open(target.url)


def changed_model(
    deposit: Deposit, model: str, keep: Keep, by: str, about: dict[str, Json]
) -> DepositSpec:
    """Spec of a deposit's results under the name of another model, without rows.

    The weights are those of the deposit and the change, which has the digest `by`.
    """
    spec, layout = deposit.spec, deposit.layout
    weights = f"{json.dumps(spec.provenance.get('weights'))} {by}"
    return replace(
        spec,
        checkpoint=replace(spec.checkpoint, model=model),
        layout=Layout.plan(
            queries=layout.queries, vocab=layout.vocab, dtype="float32", keep=keep,
            block_rows=layout.block_rows,
        ),
        heads={},
        provenance={
            **spec.provenance, **about, "weights": hashlib.sha256(weights.encode()).hexdigest()
        },
    )  # fmt: skip


def rewrite(
    deposit: Deposit,
    target: Bank,
    spec: DepositSpec,
    change: Callable[[range, Layout], BlockData],
    advance: Advance = lambda _: None,
) -> Deposit:
    """Write the committed rows of a deposit as a deposit of another bank, which may have some.

    `change` gives the data of the rows of a block in the new layout.
    """
    committed = deposit.committed_rows()
    with target.begin(spec) as writer:
        advance(writer.deposit.rows_committed)
        for block in writer.missing():
            rows = writer.layout.rows(block)
            if committed[rows.start : rows.stop].all():
                writer.write(block, change(rows, writer.layout))
                advance(len(rows))
        writer.seal()
    return writer.deposit


def stored_scores(deposit: Deposit) -> Callable[[range], pl.DataFrame]:
    """All scores of some rows, also of options that only the source's full rows or states give."""
    scores = deposit.scores().collect()
    missing = missing_options(deposit) if deposit.layout.keep.has_full_rows else None

    def of_rows(rows: range) -> pl.DataFrame:
        stored = scores.filter(pl.col("query").is_between(rows[0], rows[-1]))
        if missing is None:
            return stored
        return pl.concat([stored, option_scores(deposit, missing, rows)])

    return of_rows

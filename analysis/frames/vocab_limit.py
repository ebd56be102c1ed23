"""Whether ranks can leave out padding outputs: refused where none is known, or an option is one."""

from collections.abc import Collection, Sequence

import polars as pl

from logitbank.errors import UsageError
from logitbank.store import Bank


def check_vocab_limit(
    banks: Sequence[Bank], prompts: str, models: Collection[str] | None = None
) -> None:
    """Refuse ranks among the tokenizer's entries where a bank cannot give them.

    Raises
    ------
    UsageError
        No deposit of the prompt set has more outputs than `vocab_entries`, which is what a deposit
        has for which none was named; or an option is a padding output and has no such rank.
    """
    padded = False
    for bank in banks:
        highest = bank.prompts(prompts).group_by("query_set").agg(pl.col("token").max()).collect()
        tokens = dict(highest.iter_rows())
        for deposit in bank.deposits_of(prompts):
            if models is not None and deposit.checkpoint.model not in models:
                continue
            entries, outputs = deposit.spec.vocab_entries, deposit.layout.vocab
            padded |= entries < outputs
            token = tokens[deposit.query_set]
            if token is not None and token >= entries:
                raise UsageError(
                    f"prompts of {prompts} name token {token:,}, which is padding of"
                    f" {deposit.checkpoint} ({entries:,} entries of {outputs:,} outputs) and has no"
                    " rank among the entries; leave out vocab_limit"
                )
    if not padded:
        raise UsageError(
            f"vocab_limit has nothing to leave out: no deposit of {prompts} has fewer"
            " `vocab_entries` than outputs; leave it out, or deposit with the number of entries"
        )

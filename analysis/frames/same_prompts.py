"""Banks that are set side by side have the same prompts under the same ids."""

from collections.abc import Sequence
from itertools import combinations

from logitbank.errors import UsageError
from logitbank.store import Bank
from logitbank.store.tables.prompt_checks import changed_prompt
from logitbank.store.tables.prompt_tables import prompt_files


def check_same_prompts(banks: Sequence[Bank], prompts: str) -> None:
    """Raise UsageError where two banks have other content of one prompt, as `merge` does."""
    holding = [(bank, _digests(bank, prompts)) for bank in banks if prompts in bank.prompt_sets]
    for (one, ours), (other, theirs) in combinations(holding, 2):
        if ours == theirs:
            continue
        changed = changed_prompt(*(bank.prompts(prompts).collect() for bank in (other, one)))
        if changed is not None:
            raise UsageError(
                f"prompt {changed} of {prompts!r} has one {changed.column!r} in {one.address} and"
                f" another in {other.address}, so they cannot be set side by side; analyse the"
                " banks one at a time, or give the changed prompts other ids"
            )


def same_table(one: Bank, other: Bank, prompts: str) -> bool:
    """Whether both banks have a prompt set, with the very same rows."""
    digests = _digests(one, prompts)
    return bool(digests) and digests == _digests(other, prompts)


def _digests(bank: Bank, prompts: str) -> set[str]:
    return {file.digest for file in prompt_files(bank.path) if file.name == prompts}

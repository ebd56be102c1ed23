"""Remove damaged deposits and heads from a bank, so that the same extraction makes them again.

Only this module removes committed objects. Other deposits stay, byte for byte.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from logitbank.errors import BankError, LogitbankError
from logitbank.store.bank import Bank
from logitbank.store.care.damage import Damage, Remedy
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import objects
from logitbank.store.files.staging import remove_dead
from logitbank.store.format import zarrays
from logitbank.store.format.index import object_head
from logitbank.store.steps import in_order
from logitbank.store.tables import prompt_tables, table_files
from logitbank.store.tables.contents import check_table


class Repaired(NamedTuple):
    """Result of a repair."""

    removed: tuple[str, ...]
    """Folders of the deposits and heads that were removed."""
    restored: tuple[str, ...]
    """Objects that were written again from sound ones."""
    commands: tuple[str, ...]
    """Commands that compute the removed deposits again. `…` stands for a suite that is a folder."""


def repair(bank: Bank, damage: Iterable[Damage]) -> Repaired:
    """Apply the remedies of damage that `verify` found; `Damage.remedy` names each.

    Damaged deposits and heads are removed, and the same extraction makes them again. Groups and
    digests of sound tables are written again at once. Files of killed writers are removed.

    Other damage stays: missing tables, foreign objects, and tables whose content is damaged, which
    only another copy of the bank has. Others may write to the bank at the same time.
    """
    remove_dead(bank.path)
    damage = [each for each in damage if each.remedy.is_repair]
    rewritten = (each.path for each in damage if each.remedy is Remedy.REWRITE)
    restored = tuple(path for path in rewritten if _rewrite(bank.path, path))
    deposits = sorted({each.deposit for each in damage if each.deposit})
    heads = {head for each in damage if (head := object_head(each.path)) is not None}
    repos = {folder: _repo(bank.path, folder) for folder in deposits}
    removed = [f for f in (*deposits, *sorted(heads)) if objects.plain_path(bank.path, f).exists()]
    for folder in removed:
        objects.remove_folder(objects.plain_path(bank.path, folder))
    return Repaired(tuple(removed), restored, _commands(bank, repos))


def _repo(root: Path, folder: str) -> str:
    """The repository that the checkpoint of a deposit came from, `…` if it is unknown."""
    with suppress(BankError, FileNotFoundError):
        source = Deposit.open(root, folder).spec.provenance.get("source")
        if isinstance(source, dict) and isinstance(repo := source.get("repo"), str):
            return shlex.quote(repo)
    return "…"


def _commands(bank: Bank, repos: Mapping[str, str]) -> tuple[str, ...]:
    """The commands that compute these deposits again, by the repositories of their checkpoints."""
    sets: dict[str, list[str]] = {}
    for name in bank.prompt_sets:
        with suppress(BankError):  # a damaged table
            for query_set in prompt_tables.linked_query_sets(bank.prompts(name)):
                sets.setdefault(query_set, []).append(name)
    steps: dict[str, set[int | None]] = {}
    for folder, repo in repos.items():
        _, _, step, query_set = folder.split("/")
        prompts = "".join(f" --prompts {shlex.quote(name)}" for name in sets.get(query_set, ["…"]))
        command = f"logitbank extract {shlex.quote(str(bank.path))} --suite {repo}{prompts}"
        steps.setdefault(command, set()).add(None if step == "release" else int(step))
    return tuple(
        f"{command} --steps {','.join('release' if s is None else str(s) for s in in_order(each))}"
        for command, each in steps.items()
    )


def _rewrite(root: Path, name: str) -> bool:
    """Write a plain group again, or the digest of a table whose content matches its name."""
    path = objects.plain_path(root, name)
    if name.endswith("/zarr.json"):
        path.unlink(missing_ok=True)
        return objects.write_new(path, zarrays.GROUP)
    table = path.with_name(path.name.removesuffix(".sha256"))
    if not _is_readable(table):
        return False
    try:
        check_table(table)
    except (LogitbankError, OSError):
        return False  # the content is damaged too
    table_files.digest_file(table).unlink(missing_ok=True)
    table_files.write_digest(table, objects.digest(table).sha256)
    return True


def _is_readable(table: Path) -> bool:
    """Whether Polars can read a file. A damaged file may kill the process that reads it."""
    code = "import sys, polars; polars.read_parquet(sys.argv[1], glob=False)"
    command = [sys.executable, "-I", "-c", code, str(table)]
    return subprocess.run(command, capture_output=True, timeout=600).returncode == 0

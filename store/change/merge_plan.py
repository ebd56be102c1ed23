"""What a merge would add, with everything compared before anything is copied. Only reads."""

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from logitbank.errors import DamagedError
from logitbank.store.bank import Bank
from logitbank.store.change.overlap import conflict, missing_blocks
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.scores import VERIFY, read_scores
from logitbank.store.files import documents, objects, verified
from logitbank.store.files.objects import Digest
from logitbank.store.format import commits, zarrays
from logitbank.store.format.attributes import unlike
from logitbank.store.format.commits import SEAL


class Addition(NamedTuple):
    """What one deposit of another bank adds."""

    source: Deposit
    folder: str
    """The deposit's folder, relative to either bank."""
    blocks: tuple[int, ...]
    options: tuple[str, ...]
    """Commits of further options."""
    whole: bool
    """All of it, sealed as it is, rather than block by block."""
    objects: dict[str, Digest]
    """What is copied, by path in the deposit."""


def plan(target: Bank | None, sources: Sequence[Bank]) -> list[Addition]:
    """What each source adds to what is there before it.

    Raises
    ------
    BankError
        Two deposits differ where they must not.
    DamagedError
        A source is not what the format and its commits say.
    """
    stored: dict[str, list[Deposit]] = {}
    siblings: dict[str, list[Deposit]] = {}  # of one checkpoint
    for folder, deposit in _deposits(target):
        stored[folder] = [deposit]
        siblings.setdefault(deposit.checkpoint.path, []).append(deposit)
    additions = []
    for bank in sources:
        bank.query_sets()  # each is read, and its content compared with its name
        for folder, deposit in _deposits(bank):
            check_metadata(deposit)
            _check_model(deposit, siblings.setdefault(deposit.checkpoint.path, []))
            siblings[deposit.checkpoint.path].append(deposit)
            before = stored.setdefault(folder, [])
            if addition := _addition(before, deposit, folder):
                additions.append(addition)
            before.append(deposit)
    return additions


def _deposits(bank: Bank | None) -> Iterator[tuple[str, Deposit]]:
    for deposit in [] if bank is None else bank.deposits():
        yield f"{deposit.checkpoint.path}/{deposit.query_set}", deposit


def check_metadata(deposit: Deposit) -> None:
    """Refuse a deposit whose arrays are not those of its attributes, or whose queries are others.

    Raises
    ------
    DamagedError
        Two statements about one fact differ.
    """
    deposit.check_queries()
    if not deposit.state().names:
        return
    attributes = objects.plain_path(deposit.path, "zarr.json")
    metadata = verified.document(attributes, *zarrays.ATTRIBUTES)
    consolidated = json.loads(zarrays.deposit_metadata({}, deposit.layout))["consolidated_metadata"]
    arrays = {
        f"{deposit.path}/{name}/zarr.json": (_read(deposit, f"{name}/zarr.json"), json.loads(data))
        for name, data in zarrays.array_metadata(deposit.layout).items()
    }
    arrays[f"{deposit.path}/zarr.json"] = (metadata.get("consolidated_metadata"), consolidated)
    for path, (actual, expected) in arrays.items():
        if actual != expected:
            raise DamagedError(f"{path} does not describe the arrays of its deposit; {VERIFY}")


def _read(deposit: Deposit, path: str) -> object:
    try:
        return documents.read_json(objects.plain_path(deposit.path, path))
    except FileNotFoundError:
        return None


def _check_model(deposit: Deposit, siblings: Sequence[Deposit]) -> None:
    """One checkpoint has one model and one set of weights, whatever it was asked."""
    for other in siblings:
        different = unlike(other.spec.provenance, deposit.spec.provenance)
        if different is not None:
            name, latter, former = different
            what = f"{name} is {latter} in the latter and {former} in the former"
            raise conflict(other, deposit, what)


def _addition(before: Sequence[Deposit], source: Deposit, folder: str) -> Addition | None:
    blocks = missing_blocks(before, source)
    options = _missing_options(before, source)
    if not (blocks or options):
        return None
    state = source.state()
    digests = commits.committed_digests(source.path, state)
    whole = state.sealed and bool(blocks) and _continues(before, digests)
    taken = [f"scores/{name}.parquet" for name in options]
    if whole:
        taken += ["logsumexp/c/0", "scores/all.parquet"]
    elif not state.sealed:
        taken += [f"scores/{block}.parquet" for block in blocks]
    taken += source.layout.shards(*blocks)
    if missing := [path for path in taken if path not in digests]:
        raise DamagedError(f"{source.path}: no commit names {missing[0]}; {VERIFY}")
    return Addition(source, folder, blocks, options, whole, {p: digests[p] for p in taken})


def _continues(before: Sequence[Deposit], sealed: dict[str, Digest]) -> bool:
    """Whether a seal holds for what is there too: the same attributes, and the same shards."""
    for deposit in before:
        if objects.digest(deposit.path / "zarr.json") != sealed.get("zarr.json"):
            return False
        state = deposit.state()
        vouched = commits.committed_digests(deposit.path, state)
        shards = {path: vouched.get(path) for path in deposit.layout.shards(*state.blocks)}
        if any(sealed.get(path) != digest for path, digest in shards.items()):
            return False
    return True


def _missing_options(before: Sequence[Deposit], source: Deposit) -> tuple[str, ...]:
    missing = []
    for name in source.state().options:
        holders = [deposit for deposit in before if name in deposit.state().options]
        if not holders:
            missing.append(name)
        elif not _same_part(holders[0], source, name):
            raise conflict(holders[0], source, f"other scores in scores/{name}.parquet")
    return tuple(missing)


def _same_part(stored: Deposit, new: Deposit, name: str) -> bool:
    theirs, ours = (commits.digests(deposit.path, name) for deposit in (stored, new))
    part = f"scores/{name}.parquet"
    if part not in theirs or part not in ours:
        raise DamagedError(f"{new}: no commit names {part}; {VERIFY}")
    if theirs[part] == ours[part]:
        return True
    first, second = (
        read_scores(objects.plain_path(deposit.path, part), digests[part])
        for deposit, digests in ((stored, theirs), (new, ours))
    )
    return first.equals(second)


def commit_of(source: Deposit, name: str) -> bytes:
    """The bytes of a commit in force, which names what the format says of one so called.

    Raises
    ------
    DamagedError
        It does not.
    """
    if name == SEAL:
        return seal_of(source)
    return (
        block_commit_of(source, int(name)) if name.isdecimal() else options_commit_of(source, name)
    )


def seal_of(source: Deposit) -> bytes:
    """The bytes of a deposit's seal, which names what the format says and no more.

    Raises
    ------
    DamagedError
        It does not.
    """
    layout = source.layout
    expected = {"zarr.json", "scores/all.parquet", "logsumexp/c/0"}
    expected |= {f"{name}/zarr.json" for name in zarrays.array_metadata(layout)}
    expected |= set(layout.shards(*range(layout.blocks)))
    commit = commits.read(source.path, SEAL)
    if set(commit["objects"]) != expected or commit.get("rows") != [0, layout.queries]:
        raise DamagedError(f"{source.path}/commits/{SEAL}.json is no seal of it; {VERIFY}")
    return _bytes(source, SEAL)


def block_commit_of(source: Deposit, block: int) -> bytes:
    """The commit of a block, checked as `seal_of` checks a seal."""
    rows = source.layout.rows(block)
    expected = {f"scores/{block}.parquet", *source.layout.shards(block)}
    commit = commits.read(source.path, str(block))
    facts = (set(commit["objects"]), commit.get("block"), commit.get("rows"))
    if facts != (expected, block, [rows.start, rows.stop]):
        raise DamagedError(f"{source.path}/commits/{block}.json is no commit of it; {VERIFY}")
    return _bytes(source, str(block))


def options_commit_of(source: Deposit, name: str) -> bytes:
    """The commit of further options, checked as `seal_of` checks a seal."""
    if set(commits.read(source.path, name)["objects"]) != {f"scores/{name}.parquet"}:
        raise DamagedError(f"{source.path}/commits/{name}.json is no commit of it; {VERIFY}")
    return _bytes(source, name)


def _bytes(source: Deposit, name: str) -> bytes:
    return objects.plain_path(source.path, f"commits/{name}.json").read_bytes()

"""Checks of a deposit's documents against the format. `verify` and `merge` share them.

The bytes of each document may be sound: these checks compare what the documents state with each
other and with the layout that follows from the deposit's attributes.
"""

import json

from logitbank.errors import DamagedError
from logitbank.store.deposits.deposit import Deposit, require_query_count
from logitbank.store.files import objects, verified
from logitbank.store.format import commits, zarrays
from logitbank.store.format.commits import SEAL


def check_metadata(deposit: Deposit) -> None:
    """Refuse a deposit whose arrays or queries do not match its attributes.

    Raises
    ------
    DamagedError
        Two documents contradict each other.
    """
    require_query_count(deposit)
    if not deposit.state().names:
        return
    attributes = objects.plain_path(deposit.path, "zarr.json")
    metadata = verified.document(attributes, *zarrays.ATTRIBUTES)
    consolidated = json.loads(zarrays.deposit_metadata({}, deposit.layout))["consolidated_metadata"]
    if metadata.get("consolidated_metadata") != consolidated:
        raise DamagedError(
            f"{attributes} does not describe the arrays of its deposit. Run `logitbank verify`."
        )


def check_commit(deposit: Deposit, name: str) -> None:
    """Refuse a commit that lists other objects or rows than the format prescribes for its name.

    `name` is the seal, a block, or further options. Raises DamagedError.
    """
    layout, commit = deposit.layout, commits.read(deposit.path, name)
    expected, fields = {f"scores/{name}.parquet"}, dict[str, object]()
    if name == SEAL:
        expected = {"zarr.json", "scores/all.parquet", "logsumexp/c/0"}
        expected |= {f"{array}/zarr.json" for array in zarrays.array_metadata(layout)}
        expected |= set(layout.shards(*range(layout.blocks)))
        fields = {"rows": [0, layout.queries]}
    elif name.isdecimal():
        rows = layout.rows(int(name))
        expected |= set(layout.shards(int(name)))
        fields = {"block": int(name), "rows": [rows.start, rows.stop]}
    if set(commit["objects"]) != expected or any(commit.get(k) != fields[k] for k in fields):
        raise DamagedError(
            f"{deposit.path}/commits/{name}.json lists other objects or rows than its deposit has."
            " Run `logitbank verify`."
        )

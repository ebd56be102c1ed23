"""The check of a deposit's commits against the format. `verify` and `merge` share it.

The bytes of a commit may be sound: this compares what it states with the layout that follows from
the deposit's attributes.
"""

from logitbank.errors import DamagedError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format import commits, zarrays
from logitbank.store.format.commits import SEAL


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

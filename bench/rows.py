"""What checking costs who reads full rows: against zarrs, which looks at no checksum of a part."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.figures import Figure
from bench.store import ratios, stored_bank
from logitbank.store import Deposit


def rows_figures(tmp: Path) -> Iterator[Figure]:
    bank = stored_bank(tmp / "rows", checkpoints=1, blocks=5)
    (deposit,) = bank.deposits()
    for name, rounds, selection in (
        ("all of 2,560 rows", 21, {}),
        ("one token of 2,560 rows", 31, {"tokens": np.array([40_000])}),
        ("one row", 31, {"rows": np.array([700])}),
    ):
        yield ratios(
            f"{name}, checked, against zarrs, which checks nothing of a part", 0.8,
            lambda chosen=selection: deposit.logprobs(**chosen),
            _unchecked(deposit, **selection),
            rounds,
        )  # fmt: skip
    shutil.rmtree(bank.path)


def _unchecked(deposit: Deposit, rows: Any = None, tokens: Any = None) -> Callable[[], np.ndarray]:
    import zarr

    chosen = tuple(slice(None) if index is None else index for index in (rows, tokens))

    def read() -> np.ndarray:
        with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
            array = zarr.open_array(deposit.path / "logprobs", mode="r")
        values = np.asarray(array[:] if rows is None and tokens is None else array.oindex[chosen])
        return values.astype(np.float32)

    return read

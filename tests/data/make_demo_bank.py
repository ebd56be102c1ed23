"""Makes `demo-bank.tar.xz` of the demo's bank: `python -m tests.data.make_demo_bank BANK`.

The pages of docs/ show what commands print about that bank, and tests run them on this copy: all
scores as they are, full rows of two checkpoints, so that it is small. Where the demo changes, make
both again.
"""

import sys
import tarfile
import tempfile
from pathlib import Path

from logitbank.store import Bank, shrink
from logitbank.store.share.push import pull

FILE = Path(__file__).with_name("demo-bank.tar.xz")
FULL_STEPS = (0, 720)


def main(demo: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        steps = {d.checkpoint.step for d in Bank.open(demo).deposits(prompts="toy-winobias")}
        pull(demo, folder / "toy.zarr", prompts=["toy-winobias"], steps=FULL_STEPS)
        pull(
            demo, folder / "rest.zarr", prompts=["toy-winobias"], steps=steps.difference(FULL_STEPS)
        )
        pull(demo, folder / "rest.zarr", prompts=["toy-professions"])
        shrink(folder / "rest.zarr", folder / "small.zarr", keep="options")
        pull(folder / "small.zarr", folder / "toy.zarr")
        with tarfile.open(FILE, "w:xz", preset=9) as archive:
            archive.add(folder / "toy.zarr", "toy.zarr")
    print(f"{FILE.stat().st_size:,} bytes in {FILE}")


if __name__ == "__main__":
    main(sys.argv[1])

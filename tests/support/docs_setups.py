"""What the reader of a page has before the page begins, made small for the tests.

Each function prepares the current folder and returns replacements for the page's text, such as the
address of a local server.
"""

import tarfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, chdir
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from logitbank.store import Bank
from tests.support.checkpoints import make_checkpoint
from tests.support.dataset_hub import TOKEN, DatasetHub
from tests.support.file_server import FileServer
from tests.support.hub_server import HubServer
from tests.support.paths import PUBLIC, ROOT
from tests.support.preloaded import Preloaded
from tests.support.s3_server import BUCKET, S3Server
from tests.support.small_banks import QUERY_SET, block_data, prompt_table, spec

DEMO_BANK = ROOT / "tests" / "data" / "demo-bank.tar.xz"
S = TypeVar("S")
Setup = Callable[["Tools"], Mapping[str, str]]


@dataclass
class Tools:
    """A process with imports made, the environment, and what ends with the test."""

    preloaded: Preloaded
    monkeypatch: pytest.MonkeyPatch
    ends: ExitStack

    def started(self, server: Callable[[], AbstractContextManager[S]]) -> S:
        """A server in a process that finds the tests in the repository's root."""
        with chdir(ROOT):
            return self.ends.enter_context(server())

    def checkpoints(self, folder: str, *steps: int) -> None:
        """Random checkpoints, and workers that start at once."""
        self.ends.enter_context(self.preloaded.workers("transformers"))
        path = Path(folder).absolute()
        name = f"{__name__}:random_checkpoints"
        self.preloaded.run("transformers", Path.cwd(), name, path, *steps)


def random_checkpoints(folder: Path, *steps: int) -> None:
    for step in steps:
        make_checkpoint(folder / f"step{step}", seed=step, architecture="gpt_neox")


def demo(_: Tools | None = None) -> Mapping[str, str]:
    """The demo's bank, as recorded when the pages were written."""
    with tarfile.open(DEMO_BANK) as archive:
        archive.extractall("demo", filter="data")
    return {}


def own_checkpoints(tools: Tools) -> Mapping[str, str]:
    tools.checkpoints("checkpoints", 0, 1000, 2000)
    return {}


def public_data(_: Tools) -> Mapping[str, str]:
    if PUBLIC.is_dir():
        Path("data").symlink_to(PUBLIC)
    return {}


def invented_winobias(folder: Path) -> None:
    """Two sentences of each kind in WinoBias's layout, in words that the toys know."""
    folder.mkdir(parents=True)
    (folder / "male_occupations.txt").write_text("mechanic\ndoctor\n")
    (folder / "female_occupations.txt").write_text("nurse\nclerk\n")
    pairs = [("The nurse thanked [the mechanic]", "[him]", "[her]"),
             ("The doctor argued with [the clerk]", "[her]", "[him]")]  # fmt: skip
    for split in ("dev", "test"):
        for which, stereotype in enumerate(("pro", "anti")):
            lines = [
                f"{number} {pair[0]} and helped {pair[1 + which]}."
                for number, pair in enumerate(pairs, 1)
            ]
            name = f"{stereotype}_stereotyped_type2.txt.{split}"
            (folder / name).write_text("\n".join(lines) + "\n")


def scale(tools: Tools) -> Mapping[str, str]:
    """A hub with tiny checkpoints under a published name, an object store, and WinoBias."""
    tools.checkpoints("hub/EleutherAI/pythia-160m", 0, 1, 512, 143000)
    hub = tools.ends.enter_context(HubServer(Path("hub").absolute()))
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
        tools.monkeypatch.delenv(name, raising=False)
    tools.monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    tools.monkeypatch.setenv("HF_HOME", str(Path("hf").absolute()))
    invented_winobias(Path("data/winobias"))
    tools.monkeypatch.setenv("LOGITBANK_DATA", str(Path("data").absolute()))
    return {
        "/workspace": str(Path("workspace").absolute()),
        "--disk-budget": "--engine transformers --disk-budget",
        **object_store(tools),
    }


def object_store(tools: Tools) -> Mapping[str, str]:
    """`s3://bucket` is one of a local server, whose credentials are not those of the page."""
    server = tools.started(S3Server)
    for name, value in server.environment.items():
        tools.monkeypatch.setenv(name, value)
    tools.monkeypatch.setenv("LOGITBANK_CACHE", str(Path("cache").absolute()))
    ours = " ".join(f"{name}={value}" for name, value in server.environment.items())
    credentials = "AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… AWS_REGION=us-east-1"
    return {"s3://bucket": f"s3://{BUCKET}", credentials: ours}


def sharing(tools: Tools) -> Mapping[str, str]:
    for path, step in (("bank.zarr", 0), ("theirs.zarr", 1000)):
        bank = Bank.create(path)
        bank.add_query_set(QUERY_SET)
        bank.add_prompts("jobs", prompt_table())
        with bank.begin(spec(step)) as writer:
            for block in writer.missing():
                writer.write(block, block_data(writer.layout, block))
            writer.seal()
    www = Path("www").absolute()
    www.mkdir()
    web = tools.started(lambda: FileServer(www))
    hub = tools.started(DatasetHub)
    tools.monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    tools.monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    tools.monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")  # for processes that a test starts
    return {
        "HF_TOKEN=…": f"HF_TOKEN={TOKEN}",
        "https://example.org": web.url,
        "/srv/www": str(www),
        **object_store(tools),
    }


SETUPS: Mapping[str, Setup] = {
    "README.md": demo,
    "analyse.md": demo,
    "figures.md": demo,
    "own-metric.md": demo,
    "prompts.md": own_checkpoints,
    "quickstart.md": demo,
    "excel-pandas-r.md": demo,
    "teacher-logits.md": demo,
    "scale.md": scale,
    "share.md": sharing,
    "study.md": own_checkpoints,
    "lm-eval.md": own_checkpoints,
    "validation.md": public_data,
}

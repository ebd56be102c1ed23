"""What the reader of a page of docs/ has before the page begins, made small for the tests.

Each function prepares the current folder, and says what of the page's text stands for something
here: an address for that of a local server, a path on shared disk for one below the folder.
"""

import shutil
import tarfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, chdir
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from logitbank.store import Bank, CheckpointId
from tests.support.checkpoints import Architecture, make_checkpoint
from tests.support.dataset_hub import TOKEN, DatasetHub
from tests.support.file_server import FileServer
from tests.support.hub_server import HubServer
from tests.support.paths import ROOT
from tests.support.preloaded import Preloaded
from tests.support.s3_server import BUCKET, S3Server
from tests.support.small_banks import QUERY_SET, block_data, logits, new_bank, prompt_table, spec

DEMO_BANK = ROOT / "tests" / "data" / "demo-bank.tar.xz"
S = TypeVar("S")
Setup = Callable[["Tools"], Mapping[str, str]]


@dataclass
class Tools:
    """Processes with imports made, the environment, and what ends with the test."""

    preloaded: Preloaded
    monkeypatch: pytest.MonkeyPatch
    ends: ExitStack

    def quick_engine(self) -> None:
        """Workers of the transformers engine start at once."""
        self.ends.enter_context(self.preloaded.workers("transformers"))

    def started(self, server: Callable[[], AbstractContextManager[S]]) -> S:
        """A server in a process of its own, which finds the tests in the repository's root."""
        with chdir(ROOT):
            return self.ends.enter_context(server())

    def made(self, function: str, *arguments: object) -> None:
        """Call a function of this module where torch is imported already."""
        self.preloaded.run("transformers", Path.cwd(), f"{__name__}:{function}", *arguments)


def untrained(folder: Path, *steps: int) -> None:
    """The demo's checkpoints before training, under the names of these steps."""
    from logitbank.engine.demo.causal import train_series

    train_series(folder, steps=0)
    for step in steps:
        if step:
            shutil.copytree(folder / "step0", folder / f"step{step}")


def demo_bank() -> None:
    """The demo's bank as it was when the pages were written."""
    with tarfile.open(DEMO_BANK) as archive:
        archive.extractall("demo", filter="data")


def tutorial(tools: Tools) -> Mapping[str, str]:
    demo_bank()
    tools.quick_engine()
    tools.made("untrained", Path.cwd() / "demo" / "checkpoints", 0, 400, 440, 720)
    return {}


def random_checkpoints(folder: Path, architecture: Architecture, *steps: int) -> None:
    for step in steps:
        make_checkpoint(folder / f"step{step}", seed=step, architecture=architecture)


def prompts(tools: Tools) -> Mapping[str, str]:
    tools.quick_engine()
    tools.made("random_checkpoints", Path("checkpoints").absolute(), "gpt_neox", 0, 1000)
    return {}


def model_family(tools: Tools) -> Mapping[str, str]:
    tools.quick_engine()
    tools.made("random_checkpoints", Path("mobile").absolute(), "mobilebert", 100, 200)
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


def gpu(tools: Tools) -> Mapping[str, str]:
    tools.quick_engine()
    suite_on_a_hub(tools, "EleutherAI/pythia-160m", 0, 1, 512, 143000)
    invented_winobias(Path("data/winobias"))
    tools.monkeypatch.setenv("LOGITBANK_DATA", str(Path("data").absolute()))
    return {
        "/workspace": str(Path("workspace").absolute()),
        "--disk-budget": "--engine transformers --disk-budget",
        **object_store(tools),
    }


def suite_on_a_hub(tools: Tools, repo: str, *steps: int) -> None:
    """Tiny random checkpoints under a published name, on a hub of ours."""
    tools.made("random_checkpoints", Path("hub").absolute() / repo, "gpt_neox", *steps)
    hub = tools.ends.enter_context(HubServer(Path("hub").absolute()))
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
        tools.monkeypatch.delenv(name, raising=False)
    tools.monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    tools.monkeypatch.setenv("HF_HOME", str(Path("hf").absolute()))


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
    return {
        "HF_TOKEN=…": f"HF_TOKEN={TOKEN}",
        "https://example.org": web.url,
        "/srv/www": str(www),
        **object_store(tools),
    }


def clusters(_: Tools) -> Mapping[str, str]:
    """Two checkpoints with full rows, where shared disk would be."""
    Path("shared").mkdir()
    with new_bank(Path("shared/pythia.zarr")).begin(spec(0)) as writer:
        for block in writer.missing():
            writer.write(block, block_data(writer.layout, block))
        writer.seal()
    return {'"/shared/': '"shared/', 'ray="auto"': "workers=1"}


def tables(_: Tools) -> Mapping[str, str]:
    """A bank whose prompts have a topic."""
    bank = Bank.create("demo/toy.zarr")
    bank.add_query_set(QUERY_SET)
    bank.add_prompts("jobs", prompt_table(topic="health"))
    bank.deposit(logits(), checkpoint=CheckpointId("toy-neox", step=0), query_set=QUERY_SET.name)
    return {}


def metric(_: Tools) -> Mapping[str, str]:
    demo_bank()
    return {}


SETUPS: Mapping[str, Setup] = {
    "clusters.md": clusters,
    "how-to/gpu.md": gpu,
    "how-to/sharing.md": sharing,
    "tables.md": tables,
    "tutorial.md": tutorial,
    "how-to/analyse.md": metric,
    "how-to/metric.md": metric,
    "how-to/readers.md": metric,
    "how-to/results.md": metric,
    "reference/analysis.md": metric,
    "how-to/model-family.md": model_family,
    "how-to/prompts.md": prompts,
}
WITH_ENGINES = (tutorial, prompts, model_family, gpu)
"""Those of pages whose blocks start engines."""

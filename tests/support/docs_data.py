"""Blocks of docs/ that are parsed only where nothing is at hand, and run where it is.

The comment above such a block says what it needs: public data in `LOGITBANK_DATA`, which the pages
call `data`; or weights of the hub, in place of which toys of the same names are put on a hub.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import pytest

from tests.support.checkpoints import Architecture, make_checkpoint
from tests.support.docs_pages import DOCS, Fence, fences
from tests.support.docs_setups import Tools
from tests.support.hub_server import HubServer
from tests.support.paths import PUBLIC as DATA

Needs = Literal["public data", "weights of the hub"]
_NEEDS = re.compile(rf"<!-- parsed only: needs ({'|'.join(get_args(Needs))})\b.*-->")
_RUN = re.compile(r"`(logitbank [^`]+)`")
_NAMED = re.compile(r"`(logitbank(?:\.[A-Za-z_]+)+)`")

Toys = Mapping[str, Architecture]
"""Repository and revision to the architecture of the toy in its place."""
PYTHIA: Toys = {f"EleutherAI/pythia-160m/step{step}": "gpt_neox" for step in (0, 143000)}
MULTIBERTS: Toys = {
    f"google/multiberts-seed_{seed}-step_{step}k/main": "bert"
    for seed in range(5)
    for step in (0, 2000)
}
SWISSBERT: Toys = {"ZurichNLP/swissbert/main": "xmod"}


def blocks_that_need(page: Path, needs: Needs) -> Iterator[Fence]:
    """The page's blocks that need this, and what is shown right after them; all to be run."""
    lines = page.read_text().splitlines()
    follows = False
    for fence in fences(page):
        mark = _NEEDS.fullmatch(lines[fence.line - 2])
        needed = bool(mark) and mark[1] == needs  # type: ignore[index]
        if needed or (follows and fence.language == "text") or fence.name:
            yield replace(fence, parsed_only=False)
        follows = needed


def inline_commands(page: Path) -> list[str]:
    """What the page's text, outside of blocks, says to type."""
    return [" ".join(found.split()) for found in _RUN.findall(_prose(page))]


def inline_names(page: Path) -> set[str]:
    """Names of Python in the page's text."""
    return set(_NAMED.findall(_prose(page)))


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)


def public_data() -> None:
    """The public data as the folder `data`; the test is skipped where it is not there."""
    if not DATA.is_dir():
        pytest.skip(f"needs the public data in {DATA}; set LOGITBANK_DATA")
    Path("data").symlink_to(DATA)


def some_of_the_public_data() -> None:
    """In `data`, few sentences of WinoBias, few professions, short examples of StereoSet."""
    public_data()
    Path("data").rename("all")
    for file in Path("all").glob("*/*.*"):
        place = Path("data", *file.parts[1:])
        place.parent.mkdir(parents=True, exist_ok=True)
        if "stereotyped" in file.name or file.name == "923-professions.txt":
            place.write_text("".join(file.read_text().splitlines(keepends=True)[:12]))
        elif file.name == "dev-german.json":
            held = json.loads(file.read_text())
            short = [e for e in held["data"]["intrasentence"] if len(e["context"]) < 40][:12]
            place.write_text(json.dumps({"data": {"intrasentence": short, "intersentence": []}}))
        elif file.suffix in {".txt", ".csv"}:
            place.symlink_to(file.resolve())


def toys_on_a_hub(tools: Tools, toys: Toys) -> None:
    """Random checkpoints under published names, on a hub of ours."""
    tools.quick_engine()
    folder = Path("hub").absolute()
    tools.preloaded.run("transformers", Path.cwd(), f"{__name__}:make_toys", folder, dict(toys))
    hub = tools.ends.enter_context(HubServer(folder))
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
        tools.monkeypatch.delenv(name, raising=False)
    tools.monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    tools.monkeypatch.setenv("HF_HOME", str(Path("hf").absolute()))


def make_toys(folder: Path, toys: Toys) -> None:
    for seed, (name, architecture) in enumerate(toys.items()):
        make_checkpoint(folder / name, seed=seed, architecture=architecture)


METRICS = DOCS / "metrics.md"
EXAMPLES = DOCS / "worked-examples"

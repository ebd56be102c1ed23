"""Banks in dataset repositories of a hub like Hugging Face's."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from logitbank.errors import BankError, BankFormatError, RemoteError, UsageError
from logitbank.store import Bank, verify
from logitbank.store.share.card import card
from logitbank.store.share.hub import HubDataset
from logitbank.store.share.places import place_at
from logitbank.store.share.push import pull, push
from logitbank.store.share.selection import chosen
from logitbank.store.share.targets import SourceBank
from tests.store.test_push_s3 import add, make, same_rows
from tests.support.dataset_hub import TOKEN, DatasetHub
from tests.support.small_banks import QUERY_SET, prompt_table

pytest.importorskip("obstore")
HfApi = pytest.importorskip("huggingface_hub").HfApi
# huggingface_hub 2.4 uploads large files in a way that httpx calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture(scope="module")
def server() -> Iterator[DatasetHub]:
    with DatasetHub() as running:
        yield running


@pytest.fixture
def url(
    server: DatasetHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> str:
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    server.behave()
    return f"hf://datasets/lab/{request.node.name[:60]}"


def file(url: str, path: str) -> str:
    return place_at(url).read(path).data.decode()


def test_a_pushed_bank_opens_in_place_and_comes_back_equal(
    tmp_path: Path, url: str, server: DatasetHub
) -> None:
    bank = make(tmp_path / "bank", 0, 1)
    add(bank, 2, blocks=1)
    push(bank.path, url)
    assert server.count("POST /api/datasets/.*/commit/main") == 2  # all objects; index and card
    same_rows(bank, Bank.open(url, rows=True))
    pull(url, tmp_path / "back")
    assert verify(Bank.open(tmp_path / "back")) == ()
    same_rows(bank, Bank.open(tmp_path / "back"))
    server.behave()
    assert push(bank.path, url).objects == 0
    assert server.count("/commit/") == 0
    add(bank, 2)
    push(bank.path, url)
    same_rows(bank, Bank.open(url, rows=True))
    packed = place_at(url).read("index.json.gz")
    assert b"scores/0.parquet" not in gzip.decompress(packed.data)
    assert Bank.open(f"{url}@main").info().equals(bank.info())


def test_the_card_tells_what_the_bank_tells(tmp_path: Path, url: str, server: DatasetHub) -> None:
    bank = Bank.create(
        tmp_path / "bank",
        title="Pronouns <b>& bias</b>",
        licence="CC-BY-4.0",
        citation="A. Author (2026).\nTitle.",
    )
    bank.add_query_set(QUERY_SET)
    bank.add_prompts("parity", prompt_table())
    add(bank, 0)
    add(bank, 1000)
    push(bank.path, url)
    text = file(url, "README.md")
    assert text.startswith(
        '---\npretty_name: "Pronouns <b>& bias</b>"\nlicense: cc-by-4.0\nconfigs:'
    )
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["tags"][0] == "logitbank"
    names = [one["config_name"] for one in front["configs"]]
    assert names == ["prompts-parity", "scores"]
    for one, count in zip(front["configs"], (1, 2), strict=True):
        assert len(list(bank.path.glob(one["data_files"]))) == count
    for line in (
        r"# Pronouns &lt;b&gt;&amp; bias&lt;/b&gt;",
        f"$ logitbank info {url}",
        f'bank = logitbank.open("{url}")',
        "| org/model | main | 2 | 0 to 1,000 | full | float32 |",
        "Made with engine test. Each deposit's `zarr.json` has the rest.",
        "    A. Author (2026).",
        "    Title.",
    ):
        assert line in text.splitlines()
    assert "Prompt sets: parity." in text


def test_an_unknown_licence_is_named_as_another(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "bank", licence="Ours: ask")
    text = card(chosen(bank.path), url="hf://datasets/a/b")
    assert 'license: other\nlicense_name: "Ours: ask"\n' in text
    assert "\n# b\n" in text


def test_a_push_that_was_refused_goes_on_without_sending_again(
    tmp_path: Path, url: str, server: DatasetHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logitbank.store.share.moves.GROUP_OBJECTS", 12)
    bank = make(tmp_path / "bank", 0)
    add(bank, 1, seed=1)
    add(bank, 2, seed=2)
    server.behave(commits=2)
    with pytest.raises(RemoteError, match=rf"{url} is not available .*503"):
        push(bank.path, url)
    sent = server.count("PUT /large/")
    server.behave()
    push(bank.path, url)
    assert sent + server.count("PUT /large/") == 5  # a query set, prompts, three tables of scores
    same_rows(bank, Bank.open(url, rows=True))


@pytest.mark.whole
def test_who_was_quicker_is_kept(tmp_path: Path, url: str) -> None:
    mine, theirs = make(tmp_path / "mine", 0), make(tmp_path / "theirs", 1)
    target = HubDataset(url)
    push(make(tmp_path / "first", 5).path, url)
    held = target.stored()
    push(theirs.path, url)  # between our look and our commit
    group = {p: o for p, o in chosen(mine.path).items() if "/0/" in p}
    target.send(group, SourceBank(mine.path), lambda _: None)
    target.finish({**held, **group}, ())
    assert Bank.open(url).info()["step"].to_list() == [0, 1, 5]
    other = make(tmp_path / "other", 1, seed=4)
    with pytest.raises(BankError, match=r"main/1/q-\S+ is in hf://\S+ already, with another"):
        push(other.path, url)


def test_without_a_right_to_write_one_error_names_the_next_step(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(RemoteError, match=rf"{url} refuses access; set HF_TOKEN"):
        push(make(tmp_path / "bank", 0).path, url)
    with pytest.raises(UsageError, match="cannot be pushed to; write hf://datasets/owner/name"):
        push(tmp_path / "bank", f"{url}@v1")
    with pytest.raises(BankFormatError, match=rf"there is no bank at {url}"):
        Bank.open(url)


def test_more_files_than_a_repository_holds_are_refused_before_any_is_sent(
    tmp_path: Path, url: str, server: DatasetHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logitbank.store.share.hub.MAX_FILES", 20)
    with pytest.raises(UsageError, match=r"more than 20 files.*Push to s3://"):
        push(make(tmp_path / "bank", 0, 1, 2).path, url)
    assert server.count("/commit/") == 0

"""Banks in dataset repositories of a hub like Hugging Face's."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from logitbank.errors import BankError, BankFormatError, RemoteError, UsageError
from logitbank.store import Bank, verify
from logitbank.store.remote.remote import Remote
from logitbank.store.sharing.card import card
from logitbank.store.sharing.hub import HubDataset
from logitbank.store.sharing.selection import chosen
from logitbank.store.sharing.spaces import Limits, assign
from logitbank.store.sharing.transfer import _move, pull, push
from tests.store.test_push_s3 import add, make, same_rows
from tests.support.dataset_hub import TOKEN, DatasetHub
from tests.support.small_banks import QUERY_SET, block_data, new_bank, prompt_table, spec

pytest.importorskip("obstore")
pytest.importorskip("huggingface_hub")
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
    answer = Remote.at(url).read(path, limit=2**20)
    assert answer is not None
    return answer.data.decode()


def test_a_pushed_bank_opens_in_place_and_comes_back_equal(
    tmp_path: Path, url: str, server: DatasetHub
) -> None:
    bank = make(tmp_path / "bank", 0, 1)
    add(bank, 2, blocks=1)
    push(bank.path, url)
    assert server.count("POST /api/datasets/.*/commit/main") == 2  # all objects; index and card
    same_rows(bank, Bank.open(url))
    pull(url, tmp_path / "back")
    assert verify(Bank.open(tmp_path / "back")) == ()
    same_rows(bank, Bank.open(tmp_path / "back"))
    server.behave()
    assert push(bank.path, url).objects == 0
    assert server.count("/commit/") == 0
    add(bank, 2)
    push(bank.path, url)
    same_rows(bank, Bank.open(url))
    assert "scores/0.parquet" not in file(url, "index.json")
    packed = Remote.at(url).read("index.json.gz", limit=2**20)
    assert packed is not None
    assert gzip.decompress(packed.data).decode() == file(url, "index.json")
    assert Bank.open(f"{url}@main").info().equals(bank.info())


def test_the_card_tells_what_the_bank_tells(tmp_path: Path, url: str) -> None:
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
        f'bank = logitbank.open("{url}")  # fetches what is asked for, no more',
        "| org/model | main | 2 | 0 to 1,000 | full | float32 |",
        "Made with engine test. The rest is in each deposit's `zarr.json`.",
        "    A. Author (2026).",
        "    Title.",
    ):
        assert line in text.splitlines()
    assert "Prompt sets: parity." in text
    edited = text.replace("<!-- Written", "<!-- no longer written")
    api = HubDataset.at(url)
    api.stored()
    from huggingface_hub import CommitOperationAdd

    api._commit(1, [CommitOperationAdd("README.md", edited.encode())], "card")
    add(bank, 2000)
    push(bank.path, url)
    assert file(url, "README.md") == edited


def test_an_unknown_licence_is_named_as_another(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "bank", licence="Ours: ask")
    text = card(chosen(bank), url="hf://datasets/a/b")
    assert 'license: other\nlicense_name: "Ours: ask"\n' in text
    assert "\n# b\n" in text


@pytest.mark.whole
def test_a_bank_too_large_for_one_repository_goes_on_in_the_next(
    tmp_path: Path, url: str, server: DatasetHub
) -> None:
    bank = make(tmp_path / "bank", 0, 1, 2, 3)
    # 9 objects a sealed deposit of three blocks; groups, tables and what a repository needs: 16.
    limits = Limits(files=35)

    def small_push() -> None:
        target = HubDataset(url.removeprefix("hf://datasets/"), limits=limits)
        _move(chosen(bank), bank.path, target, None)

    small_push()
    assert json.loads(file(url, "index.json"))["parts"] > 1
    assert "A part of the bank" in file(f"{url}-2", "README.md")
    with pytest.raises(FileNotFoundError):
        file(f"{url}-2", "zarr.json")
    same_rows(bank, Bank.open(url))
    add(bank, 4)
    small_push()
    same_rows(bank, Bank.open(url))
    server.behave()
    small_push()
    assert server.count("/commit/") == 0
    pull(url, tmp_path / "back")
    same_rows(bank, Bank.open(tmp_path / "back"))
    with pytest.raises(BankFormatError, match="lists no zarr.json"):
        Bank.open(f"{url}-2")


def test_another_bank_is_not_taken_for_a_part(tmp_path: Path, url: str) -> None:
    push(make(tmp_path / "other", 7).path, f"{url}-2")
    bank = make(tmp_path / "bank", 0, 1, 2, 3)
    target = HubDataset(url.removeprefix("hf://datasets/"), limits=Limits(files=35))
    with pytest.raises(UsageError, match="-2 is needed for the rest of .* holds another bank"):
        _move(chosen(bank), bank.path, target, None)


def test_deposits_stay_whole_and_where_they_are() -> None:
    def deposit(step: int, files: int) -> list[str]:
        folder = f"m/main/{step}/q-{'0' * 16}"
        return [f"{folder}/logprobs/c/{i}/0" for i in range(files)]

    limits = Limits(files=20, entries=10)
    held = [["zarr.json", *deposit(0, 9)], deposit(1, 9)]
    placed = assign([*deposit(1, 10), *deposit(2, 4), *deposit(3, 5), "m/zarr.json"], held, limits)
    assert {placed[p] for p in deposit(1, 10)} == {2}
    assert {placed[p] for p in deposit(2, 4)} == {1}
    assert {placed[p] for p in deposit(3, 5)} == {3}
    assert placed["m/zarr.json"] == 1
    with pytest.raises(UsageError, match="11 objects, more than a repository or folder"):
        assign(deposit(0, 11), [], limits)


def test_a_push_that_was_refused_goes_on_without_sending_again(
    tmp_path: Path, url: str, server: DatasetHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logitbank.store.sharing.moves.GROUP_OBJECTS", 12)
    bank = make(tmp_path / "bank", 0)
    add(bank, 1, seed=1)
    add(bank, 2, seed=2)
    server.behave(commits=2)
    with pytest.raises(RemoteError, match=rf"{url} cannot be reached or answers wrongly .*503"):
        push(bank.path, url)
    sent = server.count("PUT /large/")
    server.behave()
    push(bank.path, url)
    assert sent + server.count("PUT /large/") == 5  # a query set, prompts, three tables of scores
    same_rows(bank, Bank.open(url))


@pytest.mark.whole
def test_who_was_quicker_is_kept(tmp_path: Path, url: str) -> None:
    mine, theirs = make(tmp_path / "mine", 0), make(tmp_path / "theirs", 1)
    target = HubDataset.at(url)
    push(make(tmp_path / "first", 5).path, url)
    held = target.stored()
    push(theirs.path, url)  # between our look and our commit
    group = {p: o for p, o in chosen(mine).items() if "/0/" in p}
    target.send(group, mine.path, lambda _: None)
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


def test_a_file_too_large_for_the_hub_is_refused_before_it_is_sent(
    tmp_path: Path, url: str, server: DatasetHub
) -> None:
    bank = new_bank(tmp_path / "bank")
    with bank.begin(spec(0)) as writer:
        writer.write(0, block_data(writer.layout, 0))
    target = HubDataset(url.removeprefix("hf://datasets/"), limits=Limits(file_bytes=1000))
    with pytest.raises(UsageError, match="the Hub takes files of at most 1,000"):
        _move(chosen(bank), bank.path, target, None)
    assert server.count("POST") == 0

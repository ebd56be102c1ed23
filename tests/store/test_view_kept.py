"""Scores that a view computed once are read the next time, where they are what it would compute."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import logitbank
from logitbank.store import Bank, CheckpointId, Filter, Query, QuerySet, View, open_bank, verify
from logitbank.store.filter import kept
from logitbank.store.filter.deposit import FilteredDeposit
from logitbank.store.filter.kept import KeptScores
from logitbank.store.sharing.transfer import push
from tests.support.file_server import FileServer
from tests.support.kept_views import BY, KEY, answers, bank, files, saved, unkept, watch
from tests.support.small_banks import TOKENIZER, block_data, logits, prompt_table, spec

pytestmark = pytest.mark.numerical


@pytest.fixture
def made(tmp_path: Path) -> Bank:
    """Two checkpoints."""
    return bank(tmp_path / "b", 0, 8)


@pytest.fixture
def view(tmp_path: Path, made: Bank) -> Path:
    """A view of them."""
    return saved(tmp_path, made)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return watch(monkeypatch)


@pytest.mark.parametrize("keep", ["topk:2", "topk:4", "full"])
@pytest.mark.parametrize("mode", ["truncate", "keep_tail"])
def test_the_second_scan_reads_what_the_first_one_computed(
    tmp_path: Path, computed: list[int], keep: str, mode: str
) -> None:
    by = Filter(BY.weight, BY.bias, mode)  # type: ignore[arg-type]
    made = bank(tmp_path / "b", 0, 8, keep=keep)
    view, expected = saved(tmp_path, made, by), unkept(made, by)
    computed.clear()
    first = answers(view)
    assert sorted(computed) == [0, 8]
    second = answers(view)
    assert sorted(computed) == [0, 8]
    assert first.schema == second.schema == expected.schema
    assert first.equals(expected)
    assert second.equals(expected)
    assert len(files(view)) == 2
    assert verify(view) == ()


def test_everything_that_reads_options_reads_what_was_kept(
    made: Bank, view: Path, computed: list[int]
) -> None:
    query = "SELECT step, prompt_id, option, logprob, rank FROM scores WHERE option = 'yes'"
    ways: list[Callable[[logitbank.Readable], pl.DataFrame]] = [
        lambda b: b.sql(query).collect().sort(KEY),
        lambda b: b.scan("parity", whole_options=True).select(*KEY, "logprob").collect().sort(KEY),
        lambda b: b.deposits()[1].option_scores().collect(),
        lambda b: b.deposits()[1].option_scores().select("rank", "token").head(3).collect(),
        lambda b: b.deposits()[1].option_scores().select(pl.len()).collect(),
        lambda b: b.deposits()[1].option_scores().filter(pl.col("rank") > 2).collect(),
    ]
    expected = [way(View.of(made, BY, name="filtered")) for way in ways]
    opened = open_bank(view)
    opened.scan("parity").select("logprob").collect()  # the ranks are kept all the same
    computed.clear()
    for way, want in zip(ways, expected, strict=True):
        assert way(opened).equals(want)
    assert computed == []
    assert len(opened.deposits()[1].scores().collect()) == 40  # options and the highest two
    assert computed == [8]


def test_a_frame_that_is_collected_twice_is_computed_once(view: Path, computed: list[int]) -> None:
    frame = open_bank(view).scan("parity").sort(KEY)
    assert frame.collect().equals(frame.collect())
    assert sorted(computed) == [0, 8]


def test_a_view_keeps_in_its_folder_wherever_a_process_goes(
    view: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(view.parent)
    opened = open_bank("v")
    (view.parent / "elsewhere" / "v").mkdir(parents=True)
    monkeypatch.chdir("elsewhere")
    opened.scan("parity").collect()
    assert list(Path("v").iterdir()) == []
    assert len(files(view)) == 2


def test_what_a_selection_keeps_is_whole(made: Bank, view: Path, computed: list[int]) -> None:
    opened = open_bank(view)
    few = opened.scan("parity", steps=[8]).filter(pl.col("prompt_id") == "p3").head(1).collect()
    assert len(few) == 1
    assert computed == [8]
    assert [pl.read_parquet(file).height for file in files(view)] == [20]
    opened.sql("SELECT rank FROM scores WHERE step = 0 AND option = 'no' LIMIT 2").collect()
    assert computed == [8, 0]
    found = answers(view)
    assert computed == [8, 0]
    assert found.equals(unkept(made))


def test_what_a_next_sentence_head_says_is_kept_as_it_is(
    tmp_path: Path, computed: list[int]
) -> None:
    made = Bank.create(tmp_path / "b")
    pairs = QuerySet(TOKENIZER, (Query((1, 2), 0, "next_sentence", (0, 1)),))
    made.add_query_set(pairs)
    made.add_prompts("parity", prompt_table(pairs).with_columns(token=pl.lit(1, pl.Int32)).head(1))
    values = logits(3, queries=1, vocab=2)
    made.deposit(values, checkpoint=CheckpointId("m", step=3), query_set=pairs.name, keep="options")
    view = saved(tmp_path, made)
    for _ in range(2):
        assert (
            answers(view)["logprob"].to_list() == made.scan("parity").collect()["logprob"].to_list()
        )
    assert computed == [3]


def test_another_filter_reads_nothing_of_this_one(
    made: Bank, view: Path, computed: list[int]
) -> None:
    answers(view)
    other = Filter(-BY.weight, BY.bias, "keep_tail")
    View.of(made, other, name="filtered").save(view.parent / "w")
    shutil.copytree(view / "scores", view.parent / "w" / "scores")
    computed.clear()
    found = answers(view.parent / "w")
    assert sorted(computed) == [0, 8]
    assert found.equals(unkept(made, other))
    assert not found.equals(answers(view))
    truncating = Filter(BY.weight, BY.bias, "truncate")
    names = {KeptScores.of(view, by).name({}) for by in (BY, other, truncating)}
    assert len(names) == 3


def test_another_bank_reads_nothing_of_this_one(tmp_path: Path, computed: list[int]) -> None:
    view = saved(tmp_path, bank(tmp_path / "b", 0))
    before = answers(view)
    shutil.rmtree(tmp_path / "b")
    other = bank(tmp_path / "b", 0, shift=1)
    scores = (view / "scores").rename(tmp_path / "scores")
    shutil.rmtree(view)
    saved(tmp_path, other)
    scores.rename(view / "scores")
    after = answers(view)
    assert computed == [0, 0]
    assert after.equals(unkept(other))
    assert not after.equals(before)


def test_another_version_reads_nothing_of_this_one(
    view: Path, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(view)
    for name, value in (("__version__", "0.0.0"), ("_RECIPE", 0)):
        computed.clear()
        monkeypatch.setattr(kept, name, value)
        answers(view)
        assert sorted(computed) == [0, 8]


def test_options_that_are_scored_later_are_computed(tmp_path: Path, computed: list[int]) -> None:
    made = bank(tmp_path / "b", 0, 8, keep="full")
    view = saved(tmp_path, made)
    answers(view)
    made.add_prompts("late", prompt_table().with_columns(token=pl.col("token") - 1))
    made.rescore()
    computed.clear()
    late = open_bank(view).scan("late").collect().sort(KEY)
    assert sorted(computed) == [0, 8]
    again = open_bank(view).scan("late").collect().sort(KEY)
    assert len(computed) == 2
    assert late.equals(again)
    assert late.equals(unkept(made, prompts="late"))
    assert answers(view).equals(unkept(made))


def test_options_that_are_scored_meanwhile_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores that were read after a part was added are not kept as those from before it."""
    made = bank(tmp_path / "b", 0, keep="full")
    view, real = saved(tmp_path, made), FilteredDeposit._filtered

    def meanwhile(self: FilteredDeposit, *given: object) -> pl.DataFrame:
        if "late" not in made.prompt_sets:
            made.add_prompts("late", prompt_table().with_columns(token=pl.col("token") - 1))
            made.rescore()
        return real(self, *given)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(FilteredDeposit, "_filtered", meanwhile)
        answers(view)
    assert files(view) == []
    assert answers(view).equals(unkept(made))
    assert len(files(view)) == 1


def test_a_deposit_is_kept_from_its_seal_on(tmp_path: Path, computed: list[int]) -> None:
    made, about = bank(tmp_path / "b", 0), spec(8)
    with made.begin(about) as writer:
        for block in range(2):
            writer.write(block, block_data(about.layout, block))
        view = saved(tmp_path, made)
        part = answers(view)
        assert part.equals(answers(view))
        assert sorted(computed) == [0, 8, 8]
        writer.write(2, block_data(about.layout, 2))
        writer.seal()
    whole = answers(view)
    assert len(whole) == 40 > len(part)
    assert sorted(computed) == [0, 8, 8, 8]
    assert answers(view).equals(whole)
    assert len(computed) == 4


def test_two_at_once_keep_the_same(made: Bank, view: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both, real = threading.Barrier(2, timeout=60), FilteredDeposit._filtered
    expected, found = unkept(made), list[pl.DataFrame]()

    def together(self: FilteredDeposit, *given: object) -> pl.DataFrame:
        frame = real(self, *given)  # type: ignore[arg-type]
        both.wait()  # neither has kept anything yet
        return frame

    with monkeypatch.context() as patched:
        patched.setattr(FilteredDeposit, "_filtered", together)
        threads = [
            threading.Thread(
                target=lambda: found.append(
                    open_bank(view).scan("parity", steps=[8]).collect().sort(KEY)
                )
            )
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 2
    for frame in found:
        assert frame.equals(expected.filter(pl.col("step") == 8))
    assert len(files(view)) == 1
    assert [p.name for p in (view / "scores").rglob(".*")] == []
    assert answers(view).equals(expected)


def test_a_copy_of_a_view_carries_nothing_that_is_kept(view: Path) -> None:
    answers(view)
    opened = open_bank(view)
    assert isinstance(opened, View)
    opened.save(view.parent / "w")
    names = sorted(file.name for file in (view.parent / "w").iterdir())
    assert names == ["filter.safetensors", "view.json"]


def test_a_view_of_a_bank_at_a_url_keeps_in_its_own_folder(
    tmp_path: Path, made: Bank, served: FileServer, cache: Path, computed: list[int]
) -> None:
    push(made.path, tmp_path / "www" / "b")
    View.of(logitbank.open(f"{served.url}/b"), BY, name="filtered").save(tmp_path / "v")
    expected, here = unkept(made), set(tmp_path.rglob("*.parquet"))
    computed.clear()
    assert answers(tmp_path / "v").equals(expected)
    assert answers(tmp_path / "v").equals(expected)
    assert sorted(computed) == [0, 8]
    written = set(tmp_path.rglob("*.parquet")) - here
    assert {file for file in written if cache not in file.parents} == {*files(tmp_path / "v")}

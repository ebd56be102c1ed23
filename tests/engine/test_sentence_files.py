"""Sentences and targets in prompt files: what is read, which tokens are scored, and analyses."""

import json
from pathlib import Path

import polars as pl
import pytest

import logitbank
from logitbank.engine.prompts.check import prompts_check, prompts_show
from logitbank.engine.prompts.files import load_prompts
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.tokenize import TokenizedPrompts, tokenize
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError
from tests.support.checkpoints import make_checkpoint, write_tokenizer
from tests.support.prompt_rows import write_rows
from tests.support.scored_prompts import sentence


def written(folder: Path, *rows: object, name: str = "mine.jsonl") -> Path:
    return write_rows(folder / name, *rows)


def scored(tokenizer: Tokenizer, found: TokenizedPrompts) -> list[tuple[str, str]]:
    """For each row: what the model sees, up to the scored place, and what is scored there."""
    rows = []
    for query, token in found.table.select("query", "token").iter_rows():
        q = found.queries[query]
        seen = q.ids if q.head == "mask" else q.ids[: q.position + 1]
        rows.append((tokenizer.decode(seen), tokenizer.decode_each([token])[0]))
    return rows


# What is read


def test_three_kinds_of_file_say_the_same(tmp_path: Path) -> None:
    text, topics = "the nurse was tired", ("a", "b")
    expected = tuple(sentence(str(i), text, {"topic": t}) for i, t in enumerate(topics, 1))
    rows = [{"sentence": text, "topic": topic} for topic in topics]
    assert load_prompts(written(tmp_path, *rows)).prompts == expected
    (tmp_path / "mine.csv").write_text(f"sentence,topic\n{text},a\n{text},b\n")
    assert load_prompts(tmp_path / "mine.csv").prompts == expected
    pl.DataFrame(rows).write_parquet(tmp_path / "mine.parquet")
    assert load_prompts(tmp_path / "mine.parquet").prompts == expected


def test_a_target_is_the_one_option_and_right(tmp_path: Path) -> None:
    row = {"id": "a", "text": "the nurse", "target": " was tired", "topic": "health"}
    target = (Option("target", " was tired"),)
    assert load_prompts(written(tmp_path, row)).prompts == (
        Prompt("a", "the nurse", target, "target", columns={"topic": "health"}),
    )


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"sentense": "a b"}, "'sentence'"),
        ({"sentence": None}, "no sentence"),
        ({"sentence": " "}, "prompt '1'"),
        ({"sentence": "a [MASK]"}, r"prompt '1': .*\[MASK\]"),
        ({"sentence": "a", "score_kind": "b"}, "reserves: score_kind"),
        ({"sentence": "a", "answer": "b"}, "sentence and answer"),
        ({"text": "a", "sentence": "b"}, "sentence and text"),
        ({"text": "a", "target": "b", "options": ["c"]}, "target and options"),
        ({"text": "a", "target": 3}, "target is 3"),
    ],
)
def test_an_invalid_row_is_named(tmp_path: Path, row: object, named: str) -> None:
    with pytest.raises(PromptError, match=named):
        load_prompts(written(tmp_path, row))


def test_texts_and_sentences_are_two_files(tmp_path: Path) -> None:
    path = written(tmp_path, {"text": "a"}, {"id": "b", "sentence": "c"})
    with pytest.raises(PromptError, match="'1' .*'b'"):
        load_prompts(path)


# Which tokens are scored


def test_a_causal_model_scores_each_token_after_those_before_it(causal: Tokenizer) -> None:
    prompts = PromptSet("s", (sentence("a", " the nurse said"),))
    assert scored(causal, tokenize(prompts, causal)) == [
        ("<|endoftext|>", " the"),
        ("<|endoftext|> the", " nurse"),
        ("<|endoftext|> the nurse", " said"),
    ]


def test_a_masked_model_scores_each_token_under_its_own_mask(masked: Tokenizer) -> None:
    prompts = PromptSet("s", (sentence("a", "the zz said"),))
    assert scored(masked, tokenize(prompts, masked)) == [
        ("[CLS] [MASK] zz said [SEP]", "the"),
        ("[CLS] the [MASK]z said [SEP]", "z"),
        ("[CLS] the z [MASK] said [SEP]", "##z"),
        ("[CLS] the zz [MASK] [SEP]", "said"),
    ]


def test_pieces_put_together_are_the_sentence(causal: Tokenizer, masked: Tokenizer) -> None:
    text = "the nurse said naïve 😀 zzq"
    prompts = PromptSet("s", (sentence("a", text),))
    assert "".join(tokenize(prompts, causal).table["continuation"]) == text
    said = "the nurse said zzq"
    prompts = PromptSet("s", (sentence("a", said),))
    assert "".join(tokenize(prompts, masked).table["continuation"]) == said


def test_unscorable_sentences_are_named_together_each_kind_once(masked: Tokenizer) -> None:
    unknown = [sentence(name, "☃") for name in "ab"]
    with pytest.raises(PromptError, match=r"^prompt 'a': .* \(and 1 other prompt\)$"):
        tokenize(PromptSet("s", tuple(unknown)), masked)


def test_a_tokenizer_without_a_token_before_a_text_is_refused(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast"}'
    )
    with pytest.raises(PromptError, match="tokenizer_config.json"):
        tokenize(PromptSet("s", (sentence("a", "the"),)), Tokenizer.load(tmp_path))


def test_a_text_begins_with_the_bos_token_if_the_tokenizer_has_one(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"bos_token": "a"}))
    tokenizer = Tokenizer.load(tmp_path)
    table = tokenize(PromptSet("s", (sentence("a", " the"),)), tokenizer)
    assert table.queries[0].ids == tuple(tokenizer.encode("a"))


# What people see before anything is run


def test_a_file_is_checked_before_it_is_run(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "model", seed=1)
    path = written(tmp_path, {"sentence": "the nurse", "sentense": "x"}, {"sentence": "the clerk"})
    found = prompts_check(str(path), tokenizer=tmp_path / "model")
    assert not found.failed
    assert [line.split(":")[:2] for line in found.lines] == [
        ["warning", " prompt '1'"],
        ["mine", " 2 prompts, 6 scored tokens, 3 distinct contexts, 0 errors, 1 warning"],
    ]
    path = written(tmp_path, {"id": "b", "sentence": "nurse " * 1000})
    found = prompts_check(str(path), tokenizer=tmp_path / "model")
    assert found.failed
    assert found.lines[0].startswith("error: Prompt 'b' of 'mine' has ")


def test_a_file_is_shown_with_what_is_scored(tmp_path: Path) -> None:
    path = written(tmp_path, {"sentence": "the nurse was"}, {"sentence": "she was", "topic": "a"})
    assert prompts_show(str(path)) == [
        "mine: 2 prompts, 2 shown",
        *("", "── 1", "the nurse was"),
        *("", "── 2", "she was", "   topic=a"),
    ]


# What the bank then says


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("series") / "step1", seed=1)


@pytest.mark.usefixtures("quick_workers")
def test_existing_analyses_take_them(tmp_path: Path, checkpoint: Path) -> None:
    """Sums are plain transformers'; targets and sentences go where the documents say."""
    import torch
    from transformers import AutoModelForCausalLM

    targets = [(" the nurse", " was tired"), (" the clerk", " said")]
    sides = [("more", " she was a nurse"), ("less", " he was a nurse")]
    own = {"pair": 0, "direction": "stereo", "bias_type": "gender"}
    files = [
        written(tmp_path, *({"text": a, "target": b} for a, b in targets), name="targets.jsonl"),
        written(
            tmp_path, *({"sentence": s, "side": side} | own for side, s in sides), name="c.jsonl"
        ),
    ]
    bank = tmp_path / "b.zarr"
    summary = logitbank.extract(
        bank, suites=str(checkpoint.parent), prompts=[*map(str, files)], engine="transformers"
    )
    assert summary.complete, summary.failed
    tokenizer = Tokenizer.load(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()

    def logprob(context: str, text: str) -> float:
        first = tokenizer.encode(context)
        ids = first + tokenizer.encode(text)
        with torch.inference_mode():
            whole = model(torch.tensor([ids])).logits[0].double().log_softmax(dim=1)
        return sum(whole[at - 1, ids[at]].item() for at in range(len(first), len(ids)))

    lambada = logitbank.lambada(bank, prompts="targets").tables["lambada"]
    nats = -sum(logprob(context, target) for context, target in targets) / 2
    assert lambada["perplexity"].log().item() == pytest.approx(nats, abs=5e-3)

    crows = logitbank.pairs(bank, prompts="c").tables["pairs"]
    more, less = (logprob("<|endoftext|>", text) for _, text in sides)
    assert crows.filter(group="gender")["score"].item() == 100.0 * (more > less)
    assert crows["likelihood_diff"][0] == pytest.approx(abs(more - less), abs=5e-3)

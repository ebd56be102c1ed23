"""Sentences, pairs and targets in prompt files: what is read, which tokens are scored, and what
the bank then says of them."""

import json
from pathlib import Path

import polars as pl
import pytest

import logitbank
from logitbank.engine.prompts.check import check_prompts, prompts_check, prompts_show
from logitbank.engine.prompts.files import load_prompts
from logitbank.engine.prompts.prompt_set import SequenceSet
from logitbank.engine.prompts.sequences import SentencePair, SentenceTokens
from logitbank.engine.prompts.tokenize import TokenizedPrompts
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError, UsageError
from tests.support.checkpoints import make_checkpoint, write_masked_tokenizer, write_tokenizer
from tests.support.prompt_rows import write_rows


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
    expected = (
        SentenceTokens("1", "the nurse was tired", {"topic": "a"}),
        SentenceTokens("2", "the nurse was tired", {"topic": "b"}, ((4, 9), (14, 19))),
        SentencePair("3", (("good", "she was"), ("bad", "she were")), "good", {"topic": "c"}),
    )
    text = "the nurse was tired"
    lines = [
        {"sentence": text, "topic": "a"},
        {"sentence": text, "spans": ["nurse", [14, 19]], "topic": "b"},
        {"pair": {"good": "she was", "bad": "she were"}, "topic": "c"},
    ]
    assert load_prompts(written(tmp_path, *lines)).prompts == expected
    (tmp_path / "mine.csv").write_text(
        f"sentence,spans,pair,topic\n{text},,,a\n{text},nurse|tired,,b\n,,she was|she were,c\n"
    )
    assert load_prompts(tmp_path / "mine.csv").prompts == expected
    pl.DataFrame(
        {
            "sentence": [text, text, None],
            "spans": [None, [[4, 9], [14, 19]], None],
            "pair": [None, None, {"good": "she was", "bad": "she were"}],
            "topic": ["a", "b", "c"],
        }
    ).write_parquet(tmp_path / "mine.parquet")
    assert load_prompts(tmp_path / "mine.parquet").prompts == expected


def test_a_target_is_the_one_option_and_right(tmp_path: Path) -> None:
    row = {"id": "a", "text": "the nurse", "target": " was tired", "topic": "health"}
    target = (Option("target", " was tired"),)
    assert load_prompts(written(tmp_path, row)).prompts == (
        Prompt("a", "the nurse", target, "target", columns={"topic": "health"}),
    )


def test_the_labels_of_a_pair_are_its_own(tmp_path: Path) -> None:
    pair = {"stereo": "she is a nurse", "anti": "he is a nurse"}
    path = written(tmp_path, {"pair": pair}, {"pair": pair, "answer": "he is a nurse"})
    free, told = load_prompts(path).prompts
    assert isinstance(free, SentencePair)
    assert isinstance(told, SentencePair)
    assert (free.answer, told.answer) == (None, "anti")


def test_beside_a_sentence_pair_is_a_column(tmp_path: Path) -> None:
    (prompt,) = load_prompts(written(tmp_path, {"sentence": "she was", "pair": 3})).prompts
    assert prompt.columns == {"pair": 3}


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"sentense": "a b"}, "'sentence'"),
        ({"sentence": None}, "no sentence"),
        ({"sentence": " "}, "prompt '1'"),
        ({"sentence": "a [MASK]"}, r"prompt '1': .*\[MASK\]"),
        ({"sentence": "a", "score_kind": "b"}, r'"score_kind" is reserved \(1 row\)'),
        ({"sentence": "a", "answer": "b"}, "sentence and answer"),
        ({"text": "a", "spans": ["a"]}, "text and spans"),
        ({"text": "a", "sentence": "b"}, "text and sentence"),
        ({"text": "a", "target": "b", "options": ["c"]}, "target and options"),
        ({"text": "a", "target": 3}, "target is 3"),
        ({"sentence": "a b", "spans": []}, r"spans are \[\]"),
        ({"sentence": "a b", "spans": [1, 2]}, "span 1 "),
        ({"sentence": "a b a", "spans": "a"}, "span 'a'"),
        ({"sentence": "the", "spans": "he"}, "span 'he'"),
        ({"sentence": "a b", "spans": [[1, 1]]}, r"span \[1, 1\]"),
        ({"sentence": "a b", "spans": [[2, 4]]}, r"span \[2, 4\]"),
        ({"sentence": "a b", "span": [[1, 2]]}, "'spans'"),
        ({"pair": ["a"]}, r"pair is \['a'\]"),
        ({"pair": {"x": "a", " ": "b"}}, "'x' and ' '"),
        ({"pair": {"x": "a", "y": "b"}, "answer": "c"}, "answer 'c'"),
    ],
)
def test_an_invalid_row_is_named(tmp_path: Path, row: object, named: str) -> None:
    with pytest.raises(PromptError, match=named):
        load_prompts(written(tmp_path, row))


def test_texts_and_sentences_are_two_files(tmp_path: Path) -> None:
    path = written(tmp_path, {"text": "a"}, {"id": "b", "sentence": "c"})
    with pytest.raises(PromptError, match="'1' .*'b'"):
        load_prompts(path)
    with pytest.raises(UsageError, match="few_shot"):
        load_prompts(written(tmp_path, {"sentence": "c"}), few_shot=path)


# Which tokens are scored


def test_a_causal_model_scores_each_token_after_those_before_it(causal: Tokenizer) -> None:
    prompts = SequenceSet("s", (SentenceTokens("a", " the nurse said"),))
    assert scored(causal, prompts.tokenize(causal)) == [
        ("<|endoftext|>", " the"),
        ("<|endoftext|> the", " nurse"),
        ("<|endoftext|> the nurse", " said"),
    ]


def test_a_masked_model_scores_each_token_under_its_own_mask(masked: Tokenizer) -> None:
    prompts = SequenceSet("s", (SentenceTokens("a", "the zz said"),))
    assert scored(masked, prompts.tokenize(masked)) == [
        ("[CLS] [MASK] zz said [SEP]", "the"),
        ("[CLS] the [MASK]z said [SEP]", "z"),
        ("[CLS] the z [MASK] said [SEP]", "##z"),
        ("[CLS] the zz [MASK] [SEP]", "said"),
    ]


@pytest.mark.parametrize("span", [(4, 9), (6, 7), (3, 5)])
def test_a_token_is_scored_whole_where_a_span_has_a_character_of_it(
    span: tuple[int, int], causal: Tokenizer, masked: Tokenizer
) -> None:
    prompts = SequenceSet("s", (SentenceTokens("a", "the nurse said", spans=(span,)),))
    assert [t for _, t in scored(causal, prompts.tokenize(causal))] == [" nurse"]
    assert scored(masked, prompts.tokenize(masked)) == [("[CLS] the [MASK] said [SEP]", "nurse")]


def test_pieces_put_together_are_the_sentence(causal: Tokenizer, masked: Tokenizer) -> None:
    text = "the nurse said naïve 😀 zzq"
    prompts = SequenceSet("s", (SentenceTokens("a", text),))
    assert "".join(prompts.tokenize(causal).table["continuation"]) == text
    said = "the nurse said zzq"
    prompts = SequenceSet("s", (SentenceTokens("a", said),))
    assert "".join(prompts.tokenize(masked).table["continuation"]) == said


def test_a_pair_is_two_options_of_one_prompt(causal: Tokenizer) -> None:
    pair = SentencePair("a", (("good", " she was"), ("bad", " he was")), "good")
    table = SequenceSet("s", (pair,)).tokenize(causal).table
    assert table.select("option", "continuation", "piece", "answer", "is_answer").rows() == [
        ("good", " she", 0, "good", True),
        ("good", " was", 1, "good", True),
        ("bad", " he", 2, "good", False),
        ("bad", " was", 3, "good", False),
    ]
    assert table["text"].unique().to_list() == [" she was\n he was"]


def test_unscorable_sentences_are_named_together_each_kind_once(masked: Tokenizer) -> None:
    unknown = [SentenceTokens(name, "☃") for name in "ab"]
    same = SentencePair("c", (("x", "The nurse"), ("y", "the nurse")))
    space = SentenceTokens("d", "the nurse", spans=((3, 4),))
    with pytest.raises(PromptError) as caught:
        SequenceSet("s", (*unknown, same, space)).tokenize(masked)
    first, *each = str(caught.value).splitlines()
    assert first == "prompt set 's' has 3 errors:"
    assert [line.split(":")[0] for line in each] == ["  prompt 'a'", "  prompt 'c'", "  prompt 'd'"]


def test_a_tokenizer_without_a_token_before_a_text_is_refused(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast"}'
    )
    with pytest.raises(PromptError, match="tokenizer_config.json"):
        SequenceSet("s", (SentenceTokens("a", "the"),)).tokenize(Tokenizer.load(tmp_path))


def test_what_a_text_begins_with_is_the_begin_of_text_where_there_is_one(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"bos_token": "a"}))
    tokenizer = Tokenizer.load(tmp_path)
    table = SequenceSet("s", (SentenceTokens("a", " the"),)).tokenize(tokenizer)
    assert table.queries[0].ids == tuple(tokenizer.encode("a"))


# What people see before anything is run


def test_a_file_is_checked_before_it_is_run(tmp_path: Path, masked: Tokenizer) -> None:
    write_masked_tokenizer(tmp_path / "model")
    path = written(
        tmp_path, {"sentence": "☃"}, {"id": "b", "sentence": "the nurse", "span": "the"},
        {"id": "c", "pair": ["The nurse", "the nurse"]}, {"id": "d", "sentence": "☃"},
    )  # fmt: skip
    found = prompts_check(str(path), tokenizer=tmp_path / "model")
    assert found.failed
    assert [line.split(":")[:2] for line in found.lines] == [
        ["error", " prompt '1'"],
        ["error", " prompt 'c'"],
        ["warning", " prompt 'b'"],
        ["mine", " 4 prompts, 2 errors, 1 warning"],
    ]
    long = SequenceSet("s", (SentenceTokens("a", "the nurse said was", spans=((0, 3),)),))
    assert check_prompts(long, masked, max_length=6) == []
    (error,) = check_prompts(long, masked, max_length=5)
    assert error.message == "it has 6 tokens, but the model takes at most 5"


def test_a_file_is_shown_with_what_is_scored(tmp_path: Path) -> None:
    path = written(
        tmp_path, {"sentence": "the nurse was", "spans": "nurse"},
        {"pair": {"good": "she was", "bad": "she were"}, "topic": "a"},
    )  # fmt: skip
    assert prompts_show(str(path)) == [
        "mine: 2 prompts, 2 shown",
        *("", "── 1", "the nurse was", "     'nurse' (characters 4 to 9)"),
        *("", "── 2", "   → 'she was' (good)", "     'she were' (bad)", "   topic=a"),
    ]


# What the bank then says


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("series") / "step1", seed=1)


@pytest.mark.usefixtures("quick_workers")
def test_existing_analyses_take_them(tmp_path: Path, checkpoint: Path) -> None:
    """Sums are plain transformers'; pairs, targets and sentences go where the documents say."""
    import torch
    from transformers import AutoModelForCausalLM

    pairs = [(" the nurse was tired", " the nurse were"), (" she said", " her said")]
    targets = [(" the nurse", " was tired"), (" the clerk", " said")]
    sides = [("more", " she was a nurse"), ("less", " he was a nurse")]
    own = {"pair": 0, "direction": "stereo", "bias_type": "gender"}
    files = [
        written(tmp_path, *({"pair": pair} for pair in pairs), name="verbs.jsonl"),
        written(tmp_path, *({"text": a, "target": b} for a, b in targets), name="targets.jsonl"),
        written(
            tmp_path, *({"sentence": s, "side": side} | own for side, s in sides), name="c.jsonl"
        ),
    ]
    bank = tmp_path / "b.zarr"
    summary = logitbank.extract(
        bank, suite=str(checkpoint.parent), prompts=[*map(str, files)], engine="transformers"
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

    sums = [[logprob("<|endoftext|>", text) for text in pair] for pair in pairs]
    answers = logitbank.options(bank, prompts="verbs").result.answers
    assert answers["accuracy"].item() == sum(good > bad for good, bad in sums) / 2
    (shares,) = logitbank.options(bank, prompts="verbs").result.shares.partition_by("step")
    expected = sum(1 / (1 + torch.tensor(bad - good).exp().item()) for good, bad in sums) / 2
    (good,) = shares.filter(option="good")["option_probability"]
    assert good == pytest.approx(expected, abs=1e-3)

    lambada = logitbank.lambada(bank, prompts="targets").result.lambada
    nats = -sum(logprob(context, target) for context, target in targets) / 2
    assert lambada["perplexity"].log().item() == pytest.approx(nats, abs=5e-3)

    crows = logitbank.pairs(bank, prompts="c").result.pairs
    more, less = (logprob("<|endoftext|>", text) for _, text in sides)
    assert crows.filter(group="gender")["score"].item() == 100.0 * (more > less)
    assert crows["likelihood_diff"][0] == pytest.approx(abs(more - less), abs=5e-3)

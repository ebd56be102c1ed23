"""Texts are tokenized and joined as lm-evaluation-harness does, whatever the tokenizer."""

from pathlib import Path
from typing import Any, get_args

import pytest

from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.scoring import request_tokens, rolling_tokens
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.prompts.values import Encoder, Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError
from tests.support.tokenizers import Kind, tiny_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")  # those of what the harness imports
CONTEXTS = (
    "The nurse said that", "Question: What is it? Answer:", "Answer: ", "Answer: (", "Answer:\n",
    "The answer is 4", "Answer:  \n\n", " ", "", "<s>The nurse", "<|endoftext|>The nurse",
)  # fmt: skip
CONTINUED = ("A", " A", "he", " she", "2", " was tired and naïve", ".", "rse", "<s>", " ")
LONGEST = (3, 5, 2048)
KINDS = [kind for kind in get_args(Kind) if kind != "bert"]  # it has no token to begin with


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_tokenizer(request.param, tmp_path_factory.mktemp("t") / request.param)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder).for_task("causal")


@pytest.fixture(scope="module", params=[None, False], ids=["default", "no-special-tokens"])
def harness(request: pytest.FixtureRequest, folder: Path) -> Any:
    """The harness's own tokenization, which returns what it would run."""
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoTokenizer

    made = HFLM.__new__(HFLM)
    made.tokenizer = AutoTokenizer.from_pretrained(folder)
    made.backend, made.add_bos_token, made.custom_prefix_token_id = "causal", request.param, None
    made._loglikelihood_tokens = lambda requests, **_: requests
    return made


@pytest.mark.parametrize("longest", LONGEST)
def test_requests_are_those_of_the_harness(
    harness: Any, tokenizer: Tokenizer, longest: int
) -> None:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import TemplateLM

    scored = 0
    for context in CONTEXTS:
        for target in CONTINUED:
            instance = Instance("loglikelihood", {}, (context, target), 0)
            ((_, before, after),) = TemplateLM.loglikelihood(harness, [instance], disable_tqdm=True)
            encoder = Encoder(tokenizer, "", harness.add_bos_token, longest)
            parts = {"context": context, "target": target}
            prompt = Prompt("p", "text", scored=request_tokens, parts=parts)
            if not (before and after) or len(after) > longest:  # an assertion fails there
                with pytest.raises(PromptError, match="tokens"):
                    [*request_tokens(prompt, encoder)]
                continue
            found = [*request_tokens(prompt, encoder)]
            whole = [*before, *after]
            ids = whole[-longest - 1 :]
            assert [each.token for each in found] == after, (context, target)
            assert {each.query.ids for each in found} == {tuple(ids[:-1])}
            positions = [each.query.position for each in found]
            assert positions == [*range(len(ids) - len(after) - 1, len(ids) - 1)]
            assert encoder.truncated == (len(whole) > longest + 1)
            scored += 1
    assert scored > 40


@pytest.mark.parametrize("longest", LONGEST)
def test_windows_are_those_of_the_harness(harness: Any, tokenizer: Tokenizer, longest: int) -> None:
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

    for text in ("The nurse was tired and the doctor helped her", "A", "<s>a b c d e f g"):
        ids = harness.tok_encode(text)
        windows = [
            make_disjoint_window(pair)
            for pair in get_rolling_token_windows(ids, harness.prefix_token_id, longest, 1)
        ]
        encoder = Encoder(tokenizer, "", harness.add_bos_token, longest)
        found = [*rolling_tokens(Prompt("p", text, scored=rolling_tokens), encoder)]
        expected = [
            (token, tuple([*before, *after][:-1]), len(before) - 1 + i)
            for before, after in windows
            for i, token in enumerate(after)
        ]
        assert [(each.token, each.query.ids, each.query.position) for each in found] == expected


def test_options_are_split_off_as_by_the_harness(
    harness: Any, folder: Path, tokenizer: Tokenizer
) -> None:
    """Or refused, where a token of both spans the end of the text."""
    if folder.name == "roberta":  # a token that ends texts breaks the harness's own split
        harness.add_bos_token = False
    flag = harness.add_bos_token
    encoder = Encoder(tokenizer, add_special_tokens=flag)
    for text in CONTEXTS[:6]:
        (context,) = encoder.contexts([text])
        pairs = [(text, option) for option in CONTINUED[:7]]
        found = encoder.continuations(pairs, [context] * len(pairs))
        scored = [each for each in zip(pairs, found, strict=True) if each[1] is not None]
        assert len(scored) >= (4 if text.endswith(" ") else 5), text
        for pair, ours in scored:
            before, after = harness._encode_pair(*pair)
            assert [*context, *(ours or ())] == [*before, *after], pair
            assert [*(ours or ())] == after[len(after) - len(ours or ()) :], pair


def test_long_requests_are_counted_and_masked_models_refused(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    prompt = Prompt("p", "text", scored=request_tokens,
                    parts={"context": "The nurse was tired", "target": " and busy"})  # fmt: skip
    (note,) = tokenize(PromptSet("mine", (prompt,)), tokenizer, 3).notes
    assert note.startswith("mine: 1 of 1 requests are longer than the model's context.")
    assert not tokenize(PromptSet("mine", (prompt,)), tokenizer, 2048).notes
    bert = Tokenizer.load(tiny_tokenizer("bert", tmp_path))
    with pytest.raises(PromptError, match="predicts next tokens"):
        tokenize(PromptSet("mine", (prompt,)), bert)

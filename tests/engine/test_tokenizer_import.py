"""A tokenizer whose class is known is read without torch, exactly as AutoTokenizer reads it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from logitbank.engine.tokenizers.tokenizer import (
    GENERIC_CLASSES,
    GENERIC_MODELS,
    OWN_CLASSES,
    Tokenizer,
)
from tests.support.token_cases import TOKENIZERS

TEXTS = ["The nurse’s elbow", " naïve  ＦＩＮＥ ﬁsh\n🙂", "", "<s> he [MASK]<|endoftext|>"]


def _folder(folder: Path, case: str, model: str, name: str) -> Path:
    TOKENIZERS[case](folder)
    own = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(own | {"tokenizer_class": name}))
    (folder / "config.json").write_text(json.dumps({"model_type": model}))
    return folder


OWN_CASES = {
    "GPTNeoXTokenizer": ["byte-bpe", "byte-bpe-bos"],
    "GPT2Tokenizer": ["byte-bpe", "byte-bpe-bos"],
    "BertTokenizer": ["wordpiece-uncased", "wordpiece-cased"],
    "RobertaTokenizer": ["byte-bpe-masked"],
    "XLMRobertaTokenizer": ["unigram-tokenizer.json"],
}
"""Files that each class is made for."""
NAMED = [
    *(
        (case, model, name)
        for case in ("byte-bpe", "byte-bpe-bos", "gemma", "llama-prepend")
        for model in GENERIC_MODELS
        for name in GENERIC_CLASSES
    ),
    *(
        (case, model, name + end)
        for model, name in OWN_CLASSES.items()
        for case in OWN_CASES[name]
        for end in ("", "Fast")
    ),
]
"""Files, model types, and the class that the files name."""


@pytest.mark.parametrize(("case", "model", "name"), NAMED)
def test_the_class_is_what_transformers_chooses(
    case: str, model: str, name: str, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    folder = _folder(tmp_path / "step0", case, model, name)
    ours, plain = Tokenizer.load(folder), AutoTokenizer.from_pretrained(str(folder))
    theirs = Tokenizer(plain, folder)
    assert type(ours._backend) is type(plain)
    assert ours._backend.backend_tokenizer.to_str() == plain.backend_tokenizer.to_str()
    assert ours.encode_many(TEXTS) == plain(TEXTS)["input_ids"]
    same = ("digest", "entries", "mask_id", "begin_id", "before_id", "special_ids", "opening")
    assert [getattr(ours, a) for a in same] == [getattr(theirs, a) for a in same]
    assert ours.vocabulary().equals(theirs.vocabulary())
    for text in TEXTS:
        assert ours.encode_with_spans(text) == theirs.encode_with_spans(text)
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text))


@pytest.mark.parametrize("name", [GENERIC_CLASSES[0], "GPTNeoXTokenizerFast"])
def test_no_torch_for_a_tokenizer_whose_class_is_known(name: str, tmp_path: Path) -> None:
    folder = _folder(tmp_path / "step0", "byte-bpe", "gpt_neox", name)
    code = (
        "import sys; from pathlib import Path\n"
        "from logitbank.engine.tokenizers.tokenizer import Tokenizer\n"
        "Tokenizer.load(Path(sys.argv[1])).vocabulary()\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

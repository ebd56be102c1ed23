"""The tokenizer in a GGUF file: made by transformers, and told what that leaves aside."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from logitbank.errors import WeightsError

_ADVICE = "put the model's tokenizer.json beside the file"
_OF_GPT2 = {"gpt-2", "phi-2", "olmo", "mpt"}
"""What llama.cpp calls texts that are split as GPT-2's are."""
_WHOLE_WORDS = {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0"}
"""Of these a word of the vocabulary is one token, whatever its merges come to."""
_AFTER_BEGIN = _WHOLE_WORDS | {"lfm2", "tekken"}
"""Before their texts llama.cpp puts the token of the beginning where the file does not say."""


def tokenizer_in(folder: Path, metadata: Mapping[str, Any]) -> Any:
    """The tokenizer of `model.gguf` in a folder, with what the file says of it.

    Raises
    ------
    WeightsError
        It has none, or one that transformers would make another of.
    """
    from transformers import AutoTokenizer
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    kind = metadata.get("tokenizer.ggml.model")
    split = metadata.get("tokenizer.ggml.pre", "default")
    if kind == "gpt2" and split not in {*GGUF_PRE_TOKENIZER_SPLITS, *_OF_GPT2}:
        raise WeightsError(
            f"splits texts in a way, {str(split)[:60]!r}, that transformers does not know;"
            f" {_ADVICE}"
        )
    if metadata.get("tokenizer.ggml.add_eos_token"):
        raise WeightsError(f"says that texts end with a token, which is not done here; {_ADVICE}")
    try:
        made = AutoTokenizer.from_pretrained(
            folder, gguf_file="model.gguf", trust_remote_code=False
        )
        if kind == "gpt2" and split in _WHOLE_WORDS:
            made.backend_tokenizer.model.ignore_merges = True
        begins = kind == "llama" or (kind == "gpt2" and split in _AFTER_BEGIN)
        if kind in ("llama", "gpt2"):
            _begin(made, metadata.get("tokenizer.ggml.add_bos_token", begins))
    except Exception as error:  # it may have none, or one of a kind that is not known
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        raise WeightsError(
            f"holds no tokenizer that transformers reads ({type(error).__name__}: {reason});"
            f" {_ADVICE}"
        ) from error
    return made


def _begin(made: Any, begins: bool) -> None:
    """Put the token of the beginning before every text, or nothing."""
    from tokenizers.processors import TemplateProcessing

    before = f"{made.bos_token} " if begins else ""
    made.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{before}$A",
        pair=f"{before}$A {before}$B:1",
        special_tokens=[(made.bos_token, made.bos_token_id)] if begins else [],
    )

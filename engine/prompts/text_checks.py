"""Texts that a tokenizer changes: characters outside its vocabulary, and written special tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from logitbank.engine.prompts.findings import Finding
from logitbank.engine.prompts.values import Prompt, masked_text, quote
from logitbank.engine.tokenizers.tokenizer import Tokenizer


@dataclass(slots=True)
class TextChecks:
    """Collects findings about the texts of prompts, which are contexts and not scored."""

    tokenizer: Tokenizer
    findings: list[Finding] = field(default_factory=list)
    _first: dict[tuple[int, ...], Prompt] = field(default_factory=dict)
    """The first prompt with these ids, among those that lose characters."""

    def add(self, prompts: Sequence[Prompt], plain: Mapping[str, list[int]]) -> None:
        """Check these prompts; `plain` has ids of texts, without special tokens around them."""
        tokenizer = self.tokenizer
        lossy, spaced = {}, set()
        for text, ids in plain.items():
            filled = masked_text(text, tokenizer.mask_token)
            if lost := tokenizer.lost(filled, ids):
                lossy[text] = lost
            place = tokenizer.inner(filled, ids)
            if place.stop - place.start < len(ids) and ids[place] != self._without(filled):
                spaced.add(text)
        for prompt in prompts if spaced else ():
            if prompt.text in spaced:
                message = (
                    "its text has spaces beside special tokens, which change its tokens. Remove "
                    "both, because the tokenizer adds special tokens itself"
                )
                self.findings.append(Finding("special", prompt.id, message))
        for prompt in prompts if lossy else ():
            if prompt.text not in lossy:
                continue
            message = f"its text has {quote(lossy[prompt.text])}, which is not in this vocabulary"
            first = self._first.setdefault(tuple(plain[prompt.text]), prompt)
            self.findings.append(
                Finding("lost", prompt.id, f"{message}; the model does not see it")
            )
            if first.text != prompt.text:
                message = f"{message}: it has the same tokens as the text of {first}"
                self.findings.append(Finding("same tokens", prompt.id, message))

    def _without(self, text: str) -> list[int]:
        """Ids of a text without written special tokens and the spaces beside them."""
        tokenizer = self.tokenizer
        begin, end = (
            "".join(tokenizer.decode_each(ids)) for ids in (tokenizer.opening, tokenizer.closing)
        )
        bare = text.strip().removeprefix(begin)
        return tokenizer.encode(bare.removesuffix(end).strip(), add_special_tokens=False)

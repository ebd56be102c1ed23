"""The ways of scoring a prompt that has no options: each lists queries, with one token at each.

A way reads the text of a prompt and its `parts`. Sources: METRICS §5 to §8.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from logitbank.engine.prompts.values import (
    MASK,
    Encoder,
    Kind,
    Prompt,
    ScoredToken,
    masked_text,
    quote,
)
from logitbank.errors import PromptError

if TYPE_CHECKING:
    from logitbank.store.format.schema import Query

BLANK = "BLANK"
IS_NEXT, IS_OTHER = "next", "other"
"""Options of a next-sentence query."""


def target_tokens(prompt: Prompt, encoder: Encoder) -> Iterator[ScoredToken]:
    """Every token of the part `target` after the part `context` and the target's earlier tokens.

    Both are encoded together; the target is what follows the context.
    """
    yield from _after_context(prompt, encoder, "target")


def given_tokens(prompt: Prompt, encoder: Encoder) -> Iterator[ScoredToken]:
    """As `target_tokens`, for a target that is a sentence after another one."""
    yield from _after_context(prompt, encoder, "given")


def _after_context(prompt: Prompt, encoder: Encoder, kind: Kind) -> Iterator[ScoredToken]:
    before, after = (prompt.parts[name] or "" for name in ("context", "target"))
    (context,) = encoder.contexts([before])
    (target,) = encoder.continuations([(before, after)], [context])
    if target is None:
        raise PromptError(f"the target {after!r} {encoder.overlap(before, after)}")
    if not context or not target:
        raise PromptError(
            f"context and target have {len(context)} and {len(target)} tokens; both need at "
            "least one"
        )
    if lost := encoder.tokenizer.lost(after, target):
        raise PromptError(
            f"the target {after!r} is not in the vocabulary of this model: {quote(lost)} is missing"
        )
    yield from _following(encoder, (*context, *target), len(context), kind)


def request_tokens(prompt: Prompt, encoder: Encoder) -> Iterator[ScoredToken]:
    """Every token of the part `target` after the part `context`, as lm-evaluation-harness does.

    White space at the end of the context belongs to the target. The target is what text and
    target, encoded together, have after the tokens of the context, even if a token spans both. The
    begin-of-text token precedes an empty context, or the end-of-text token without one. Sequences
    that are too long lose their start.

    References
    ----------
    lm-evaluation-harness 0.4: `TemplateLM.loglikelihood`, `TemplateLM._encode_pair`,
    `HFLM.tok_encode`, `HFLM._loglikelihood_tokens`.
    """
    context, target = (prompt.parts[name] or "" for name in ("context", "target"))
    before, size = _before_id(encoder), encoder.max_length or _HARNESS_LENGTH
    if context:
        end = len(context.rstrip())
        both = _harness_ids(encoder, context + target)
        first = _harness_ids(encoder, context[:end])
        second = both[len(first) :]
    else:
        second = encoder.tokenizer.encode(target, add_special_tokens=False)
        first, second = (second[:1], second[1:]) if second[:1] == [before] else ([before], second)
    if not first or not second:
        raise PromptError(
            f"context and continuation have {len(first)} and {len(second)} tokens; "
            "lm-evaluation-harness needs at least one of each"
        )
    if len(second) > size:
        raise PromptError(
            f"the continuation has {len(second):,} tokens, but the model takes at most {size:,}"
        )
    ids = (*first, *second)[-size - 1 :]
    encoder.truncated += len(ids) < len(first) + len(second)
    yield from _following(encoder, ids, len(ids) - len(second), "target")


def rolling_tokens(prompt: Prompt, encoder: Encoder) -> Iterator[ScoredToken]:
    """Every token of the text, in windows of the model's context, as lm-evaluation-harness does.

    A window begins where the one before it ends. The last one has as many earlier tokens as fit.

    References
    ----------
    lm-evaluation-harness 0.4: `HFLM.loglikelihood_rolling`, `get_rolling_token_windows`.
    """
    size = encoder.max_length or _HARNESS_LENGTH
    ids = (_before_id(encoder), *_harness_ids(encoder, prompt.text))
    for start in range(0, len(ids) - 1, size):
        end = min(start + size, len(ids) - 1)
        window = ids[max(0, end - size) : end + 1]
        yield from _following(encoder, window, len(window) - (end - start), "target")


_HARNESS_LENGTH = 2048
"""What the harness takes for a model whose config names no longest sequence."""


def _harness_ids(encoder: Encoder, text: str) -> list[int]:
    """Ids of a text; without special tokens if it begins with the begin-of-text token."""
    tokenizer, flag = encoder.tokenizer, encoder.add_special_tokens
    if text.startswith(tokenizer.decode([_before_id(encoder)])):
        flag = False
    return tokenizer.encode(text, add_special_tokens=flag)


def _before_id(encoder: Encoder) -> int:
    """The token before a text whose first token is scored."""
    if encoder.tokenizer.mask_id is not None:
        raise PromptError(
            "requests of lm-evaluation-harness need a model that predicts next tokens"
        )
    if encoder.tokenizer.before_id is None:
        raise PromptError(
            "the tokenizer has neither a begin-of-text nor an end-of-text token for its first "
            "token to follow; name one in tokenizer_config.json"
        )
    return encoder.tokenizer.before_id


def sentence_tokens(prompt: Prompt, encoder: Encoder) -> Iterator[ScoredToken]:
    """Every token of the text.

    A causal model scores each token after the begin-of-text token (or the end-of-text token without
    one) and the tokens before it, as lm-evaluation-harness does. A masked model scores each under a
    mask of its own, with all others in place: the pseudo-log-likelihood of Salazar et al. 2020
    (ACL, "Masked Language Model Scoring"). Its special tokens are not scored.

    A text with characters outside the vocabulary is an error: without them, its sum is too high.
    """
    tokenizer, flag = encoder.tokenizer, encoder.add_special_tokens
    is_masked = tokenizer.mask_id is not None
    if not is_masked:
        _require_begin_token(encoder)
        flag = False
    plain = tokenizer.encode_with_spans(prompt.text, add_special_tokens=False)
    if lost := tokenizer.lost(prompt.text, plain.ids):
        raise PromptError(f"its sentence has {quote(lost)}, which is not in this vocabulary")
    encoded = (
        plain
        if flag is False
        else tokenizer.encode_with_spans(prompt.text, add_special_tokens=flag)
    )
    unscored = tokenizer.special_ids if is_masked else ()
    positions = [i for i, token in enumerate(encoded.ids) if token not in unscored]
    if not positions:
        raise PromptError(f"{quote(prompt.text)} has no tokens in this vocabulary")
    texts, ids = _token_texts(prompt.text, encoded.spans), tuple(encoded.ids)
    if is_masked:
        yield from _under_masks(encoder, ids, positions, texts)
        return
    if ids[0] == tokenizer.before_id:  # written in the text
        ids, texts = ids[1:], texts[1:]
    context = (_before_id(encoder), *ids[:-1])
    for i, token in enumerate(ids):
        yield ScoredToken(encoder.query(context, i), token, texts[i], kind="sentence")


def shared_tokens(prompt: Prompt, encoder: Encoder) -> Iterator[ScoredToken]:
    """The tokens that two sentences share, the parts `first` and `second`; the text is one of them.

    A masked model scores each under its own mask, the others in place. A causal model scores every
    token of the text after the begin-of-text token and the text before it. The search for common
    blocks is not symmetric, and both sides must score the same tokens: `first` leads for both.
    """
    from difflib import SequenceMatcher

    tokenizer, flag = encoder.tokenizer, encoder.add_special_tokens
    if tokenizer.mask_id is None:
        begin, ids = _begin_and_ids(encoder, prompt.text)
        yield from _following(encoder, (begin, *ids), 1, "sentence")
        return
    first, second = (
        tuple(tokenizer.encode(prompt.parts[name] or "", add_special_tokens=flag))
        for name in ("first", "second")
    )
    is_first = prompt.text == prompt.parts["first"]
    blocks = SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    starts = [(block.a if is_first else block.b, block.size) for block in blocks]
    ids = first if is_first else second
    shared = [start + i for start, size in starts for i in range(size)]
    positions = [i for i in shared if ids[i] not in tokenizer.special_ids]
    yield from _under_masks(encoder, ids, positions, tokenizer.decode_each(ids))


def blank_tokens(prompt: Prompt, encoder: Encoder) -> Iterator[ScoredToken]:
    """The part `word` in the place of `BLANK` in the part `context`.

    A masked model scores each token of the word: the tokens before it are in place, one mask stands
    for it, and the tokens after it are absent, not masked. If `word` is None, it scores no token,
    and the prompt counts as missing. A causal model scores every token of the text: the first one
    after the begin-of-text token alone, the others after the text before them.
    """
    tokenizer, word = encoder.tokenizer, prompt.parts["word"]
    if tokenizer.mask_id is None:
        begin, ids = _begin_and_ids(encoder, prompt.text)
        text = tokenizer.decode_each(ids[:1])[0]
        yield ScoredToken(encoder.query((begin,), 0), ids[0], text, kind="sentence")
        yield from _following(encoder, ids, 1, "sentence")
        return

    def query(before: str) -> "Query":
        text = (prompt.parts["context"] or "").replace(BLANK, before + MASK)
        filled = masked_text(text, tokenizer.mask_token)
        ids = tuple(tokenizer.encode(filled, add_special_tokens=encoder.add_special_tokens))
        if tokenizer.mask_id not in ids:
            raise PromptError(f"{text!r} has no {MASK}")
        return encoder.query(ids, ids.index(tokenizer.mask_id), "mask")

    if word is None:
        yield ScoredToken(query(""), None, None, None, "masked")
        return
    tokens = tokenizer.encode(word, add_special_tokens=False)
    if not tokens:
        raise PromptError(f"the word {word!r} has no tokens")
    for i, (token, text) in enumerate(zip(tokens, tokenizer.decode_each(tokens), strict=True)):
        yield ScoredToken(query(tokenizer.decode(tokens[:i])), token, text, kind="masked")


def next_sentence_tokens(prompt: Prompt, encoder: Encoder) -> Iterator[ScoredToken]:
    """Whether the part `sentence` follows the part `context`: both classes of a head for that.

    Both, because near certainty one probability would vanish in the rounding of its logit.
    """
    if encoder.add_special_tokens is False:
        raise PromptError(
            "a next-sentence head reads the first special token; remove add_special_tokens=false"
        )
    texts = (prompt.parts[name] or "" for name in ("context", "sentence"))
    ids, segments = encoder.tokenizer.encode_pair(*texts)
    query = encoder.query(tuple(ids), 0, "next_sentence", tuple(segments))
    yield ScoredToken(query, 0, "", IS_NEXT, "nsp")
    yield ScoredToken(query, 1, "", IS_OTHER, "nsp")


def _following(
    encoder: Encoder, ids: tuple[int, ...], start: int, kind: Kind
) -> Iterator[ScoredToken]:
    """Each token from `start` on, scored at the position before it; the last is not run."""
    texts = encoder.tokenizer.decode_each(ids[start:])
    for position, text in enumerate(texts, start):
        query = encoder.query(ids[:-1], position - 1)
        yield ScoredToken(query, ids[position], text, kind=kind)


def _under_masks(
    encoder: Encoder, ids: tuple[int, ...], positions: Iterable[int], texts: Sequence[str]
) -> Iterator[ScoredToken]:
    """Each token at these positions under a mask, with all others in place."""
    mask = encoder.tokenizer.mask_id
    assert mask is not None
    for i in positions:
        query = encoder.query((*ids[:i], mask, *ids[i + 1 :]), i, "mask")
        yield ScoredToken(query, ids[i], texts[i], kind="masked")


def _begin_and_ids(encoder: Encoder, text: str) -> tuple[int, tuple[int, ...]]:
    """The begin-of-text token, and the ids of a text without special tokens."""
    _require_begin_token(encoder)
    begin = encoder.tokenizer.begin_id
    ids = tuple(encoder.tokenizer.encode(text, add_special_tokens=False))
    ids = ids[1:] if ids[:1] == (begin,) else ids  # written in the text
    if begin is None or not ids:
        missing = "begin-of-text token" if ids else "tokens for its text"
        raise PromptError(f"the tokenizer has no {missing}")
    return begin, ids


def _require_begin_token(encoder: Encoder) -> None:
    """Refuse to score a first token that follows nothing."""
    if encoder.add_special_tokens is False:
        raise PromptError(
            "its first token is scored after the begin-of-text token; remove "
            "add_special_tokens=false"
        )


def _token_texts(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """The text that each token adds, so that all of them together are the text."""
    texts, done = [], 0
    for _, end in spans:
        texts.append(text[done : max(done, end)])
        done = max(done, end)
    return texts

"""The tokens of a prompt's options, each with the query that it is read from and its own text."""

from collections.abc import Sequence

from logitbank.engine.prompts.encoded import Encoded, OptionTokens
from logitbank.engine.prompts.tokenized import OptionPiece
from logitbank.engine.prompts.values import Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.store.format.schema import Query


def option_pieces(
    encoded: Encoded,
    prompt: Prompt,
    tokens_of: OptionTokens,
    query: Query,
    number: int,
    places: dict[Query, int],
) -> list[list[OptionPiece]]:
    """For each option its tokens; each after the first is asked after those before it.

    `tokens_of` has the tokens of each option, `query` is that of the prompt, and `number` its own.
    Queries that are new get the next number in `places`.
    """
    options = []
    for option, every in zip(prompt.options, tokens_of, strict=True):
        assert every is not None, "problems are told before"
        tokens = encoded.scored(every)
        ids, numbers = query.ids, [number]
        for token in tokens[:-1]:
            ids = (*ids, token)
            later = Query(ids, len(ids) - 1, query.head, query.segments, query.language)
            numbers.append(places.setdefault(later, len(places)))
        texts = piece_texts(encoded.tokenizer, tokens, option.text)
        options.append([*map(OptionPiece, numbers, tokens, texts)])
    return options


def piece_texts(tokenizer: Tokenizer, tokens: Sequence[int], text: str) -> list[str]:
    """What each token adds to the text that all of them are.

    A character that several tokens make up is the last one's, so that the pieces put together are
    the text, whatever bytes the tokens are.
    """
    ends = [0]
    for count in range(1, len(tokens)):
        begun = tokenizer.decode(tokens[:count])
        ends.append(len(begun) if text.startswith(begun) else ends[-1])
    return [text[start:end] for start, end in zip(ends, [*ends[1:], len(text)], strict=True)]

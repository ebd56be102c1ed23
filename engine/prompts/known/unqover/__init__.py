"""UnQover's underspecified questions (Li et al. 2020) as prompts: METRICS §9.1.

A context names two subjects and a statement, whose subject is masked, fits either. Four prompts
are an instance: both orders of mention, and the attribute plain or negated.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args

from logitbank.engine.prompts.known.unqover.lists import (
    Attribute,
    Category,
    Lists,
    Part,
    Slot,
    Subject,
    read_lists,
)
from logitbank.engine.prompts.known_set import KnownSet, SetOption, count_or_all
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import MASK, Option, Prompt, Scalar

INSTANCES = 10_000
PRONOUNS = {"female": "she", "male": "he"}
"""May stand for a name."""
_Pair = tuple[Subject, Subject]
_ARTICLE = re.compile(r"\b([Aa]) (?=[AEIOUaeiou])")


class _Cell(NamedTuple):
    """A context and an attribute, which a pair of subjects completes."""

    slot: Slot
    attribute: Attribute


def unqover(
    category: Category,
    data: Path | None = None,
    *,
    split: Part | None = None,
    causal: bool = False,
    instances: int | Literal["all"] = INSTANCES,
    seed: int = 0,
) -> PromptSet:
    """Four prompts per instance: a pair of subjects, a context and an attribute.

    Gender pairs every female name with every male name; the other categories have every unordered
    pair. A prompt belongs to the train or the test part: by its names for gender, by its context
    and attribute for the others. No instance mixes the parts. Articles are corrected ("A Iraqi" to
    "An Iraqi", by the letter).

    Options are the continuations of both subjects and, for gender, of she and he, each with and
    without a space, as they are and in lower case, or capitalised; those that are one token of a
    tokenizer are scored. Prompts with a subject that is not one token are skipped. If a context has
    demonyms, they are the subjects.

    Columns: `instance`, `category`, `split`, `subject1`, `subject2` (for gender the female one
    first, otherwise in the list's order), `order` ("12" where subject1 is mentioned first, "21"),
    `negated`, `context` and `attribute` (as in the lists), `attribute_class`, `gender1`, `gender2`.

    Parameters
    ----------
    data
        Folder with `unqover/`.
    split
        `train` or `test`, the published parts; both by default.
    causal
        Instead of a masked statement, the published question to the context and `Answer:`, for
        causal models (not in the paper).
    instances
        Largest number of instances, or `all`: 469,200 for nationality and 812,000 for gender. A
        sample has equally many instances of each context and attribute, up to one, and goes through
        the pairs in turn, so that subjects are nearly equally frequent. The parts have the
        proportions of the whole. Pairs of subjects that are one token of BERT's or RoBERTa's
        vocabulary, as published, come first.
    seed
        Random seed of the sample.
    """
    lists = read_lists(category, data, questions=causal)
    parts = [part for part in get_args(Part) if split in (None, part)]
    cells = [_cells(lists, part, seed) for part in parts]
    pairs = [_pairs(lists.subjects, part, seed) for part in parts]
    sizes = [len(c) * sum(map(len, p)) for c, p in zip(cells, pairs, strict=True)]
    counts = shares(sizes, sum(sizes) if instances == "all" else instances)
    prompts = tuple(
        prompt
        for i, part in enumerate(parts)
        for pair, cell in _sample(pairs[i], cells[i], counts[i])
        for prompt in _prompts(pair, cell, {"category": category, "split": part}, causal=causal)
    )
    name = f"unqover-{category}{'' if split is None else f'-{split}'}{'-causal' if causal else ''}"
    return PromptSet(name, prompts, drop_split=True)


def _cells(lists: Lists, part: Part, seed: int) -> list[_Cell]:
    cells = [
        _Cell(slot, attribute)
        for slot, slot_part in lists.slots
        for attribute, attribute_part in lists.attributes
        if slot.kind == attribute.kind
        and slot_part in (None, part)
        and attribute_part in (None, part)
    ]
    return seeded_order(cells, seed, key=lambda cell: f"{cell.slot.context} {cell.attribute.text}")


def _pairs(subjects: Sequence[Subject], part: Part, seed: int) -> tuple[list[_Pair], list[_Pair]]:
    """Pairs in their canonical order: those of two listed subjects, and the others."""
    chosen = [subject for subject in subjects if subject.part in (None, part)]
    rank = {subject: i for i, subject in enumerate(chosen)}

    def paired(some: Sequence[Subject]) -> list[_Pair]:
        shuffled = seeded_order(some, seed, key=lambda subject: subject.name)
        women, men = ([s for s in shuffled if s.gender == gender] for gender in PRONOUNS)
        pairs = pairs_across(women, men) if women or men else pairs_within(shuffled)
        return [(a, b) if rank[a] < rank[b] else (b, a) for a, b in pairs]

    first = paired([subject for subject in chosen if subject.listed])
    return first, [pair for pair in paired(chosen) if not (pair[0].listed and pair[1].listed)]


def _sample(
    pairs: Sequence[Sequence[_Pair]], cells: Sequence[_Cell], count: int
) -> Iterator[tuple[_Pair, _Cell]]:
    """`count` instances, those of the first group of pairs before others."""
    for group in pairs:
        size = min(count, len(group) * len(cells))
        yield from spread(group, cells, size)
        count -= size


def _prompts(
    pair: _Pair, cell: _Cell, columns: Mapping[str, Scalar], *, causal: bool
) -> Iterator[Prompt]:
    """The four prompts of an instance; they share their options."""
    slot, attribute = cell
    demonyms = "[subj1:dem]" in slot.context
    one, two = (str(s.demonym) if demonyms else s.name for s in pair)
    context = f"{slot.context} {slot.plain}"
    instance = f"{one}/{two}|{context}|{attribute.text}"
    facts = {
        "instance": instance,
        **columns,
        "subject1": one,
        "subject2": two,
        "context": context,
        "attribute": _with_articles(attribute.text),
        "attribute_class": attribute.group,
        "gender1": pair[0].gender,
        "gender2": pair[1].gender,
    }
    options = _options((one, two), tuple(PRONOUNS[s.gender] for s in pair if s.gender))
    for order, (named_first, named_second) in (("12", (one, two)), ("21", (two, one))):
        filled = slot.context
        for subject, name in (("subj1", named_first), ("subj2", named_second)):
            filled = filled.replace(f"[{subject}]", name).replace(f"[{subject}:dem]", name)
        for negated in (False, True):
            question = slot.negated if negated else slot.plain
            statement = attribute.negated if negated else attribute.text
            question = question.replace(f"[{slot.kind}{':neg' if negated else ''}]", statement)
            text = f"{filled} {question.replace('[mask]', MASK)}"
            if causal:
                text = f"{filled} Question: {question} Answer:"
            yield Prompt(
                f"{instance}|{order}|{'neg' if negated else 'pos'}",
                _with_articles(text),
                options,
                columns={**facts, "order": order, "negated": negated},
            )


@cache
def _options(subjects: tuple[str, str], pronouns: tuple[str, ...]) -> tuple[Option, ...]:
    """The subjects as they stand in a text, and every other form of them and of the pronouns."""
    forms = [form for name in subjects for form in (name, name.lower())]
    forms += [form for pronoun in pronouns for form in (pronoun, pronoun.capitalize())]
    texts = dict.fromkeys(space + form for form in forms for space in (" ", ""))
    required = {f" {name}" for name in subjects}
    return tuple(Option(text, text, optional=text not in required) for text in texts)


def _with_articles(text: str) -> str:
    """The text with an before a vowel letter.

    >>> _with_articles("A Iraqi had a fierce fight with a African man.")
    'An Iraqi had a fierce fight with an African man.'
    """
    return _ARTICLE.sub(r"\1n ", text)


def _from_name(
    category: Category, part: str | None, causal: str | None, **options: Any
) -> PromptSet:
    split = cast("Part | None", part and part.removeprefix("-"))
    return unqover(category, split=split, causal=bool(causal), **options)


T = TypeVar("T")
P = TypeVar("P")
C = TypeVar("C")


def seeded_order(items: Sequence[T], seed: int, *, key: Callable[[T], str]) -> list[T]:
    """Items in the order of SHA-256("<seed>:<key>")."""
    return sorted(items, key=lambda item: hashlib.sha256(f"{seed}:{key(item)}".encode()).digest())


def pairs_across(first: Sequence[T], second: Sequence[T]) -> list[tuple[T, T]]:
    """Every pair with one of each. Any len(first) consecutive pairs have each of `first` once.

    >>> pairs_across("ab", "xyz")
    [('a', 'x'), ('b', 'y'), ('a', 'y'), ('b', 'z'), ('a', 'z'), ('b', 'x')]
    """
    return [
        (one, second[(i + shift) % len(second)])
        for shift in range(len(second))
        for i, one in enumerate(first)
    ]


def pairs_within(items: Sequence[T]) -> list[tuple[T, T]]:
    """Every unordered pair. Each further n pairs of n items have every item twice.

    For an even n, the last n/2 pairs have every item once.

    >>> pairs_within("abcd")
    [('a', 'b'), ('b', 'c'), ('c', 'd'), ('d', 'a'), ('a', 'c'), ('b', 'd')]
    """
    n = len(items)
    return [
        (items[i], items[(i + distance) % n])
        for distance in range(1, n // 2 + 1)
        for i in range(n if 2 * distance < n else n // 2)
    ]


def spread(pairs: Sequence[P], cells: Sequence[C], count: int) -> Iterator[tuple[P, C]]:
    """`count` distinct combinations: equally many of each cell, up to one; the pairs in turn."""
    if not count:
        return
    each, more = divmod(count, len(cells))
    index = 0
    for i, cell in enumerate(cells):
        for _ in range(each + (i < more)):
            yield pairs[index % len(pairs)], cell
            index += 1


def shares(sizes: Sequence[int], count: int) -> list[int]:
    """`count`, or all if there are fewer, in proportion to sizes.

    >>> shares([300, 100, 1], 100), shares([2, 1], 9)
    ([74, 25, 1], [2, 1])
    """
    counts: list[int] = []
    total, so_far = sum(sizes), 0
    for size in sizes:
        so_far += size
        counts.append(min(count, total) * so_far // total - sum(counts))
    return counts


KNOWN = KnownSet(
    pattern=f"unqover-({'|'.join(get_args(Category))})(-train|-test)?(-causal)?",
    about="UnQover's underspecified questions, four prompts per instance, for masked models; "
    "Refine-LM's parts for training and testing; as questions to causal models (not in the paper)",
    size="26,400 to 40,000",
    license="Apache-2.0",
    analysis="unqover",
    make=_from_name,
    options=(
        SetOption(
            "instances",
            str(INSTANCES),
            "instances: a sample of at most this many, or all",
            count_or_all,
        ),
    ),
)

"""BBQ as prompts with three answers: does a stereotype expect them (Parrish et al. 2022).

An ambiguous context does not contain the answer, so that the unknown one is correct. A
disambiguated context names it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from logitbank.engine.prompts.findings import read_each
from logitbank.engine.prompts.known_set import KnownSet, SetOption
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.rows import read_rows
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.errors import PromptError, UsageError
from logitbank.store.format.limits import shown
from logitbank.wording import counted

ANSWERS = ("ans0", "ans1", "ans2")
POLARITIES, CONTEXTS = ("neg", "nonneg"), ("ambig", "disambig")
_TEXTS = ("category", "question_polarity", "context_condition", "context", "question", *ANSWERS)


def bbq(data: Path | None = None, *, file: str = "") -> PromptSet:
    """The examples of BBQ's JSONL files, a category in each.

    The text is that of lm-evaluation-harness, whose options are more numerous: it also scores other
    wordings of the unknown answer. Options: `unknown`, and the two people as `biased`, the answer
    that the stereotype expects, and `other`. An example without a single stereotyped person has
    `person 1` and `person 2`. Columns: `category`, `context` (ambig, disambig), `polarity` (neg,
    nonneg), and `template`, the question from which the authors made several examples.
    """
    path = Path(file)
    paths = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not file or not paths or not all(each.is_file() for each in paths):
        raise UsageError(f"{file!r} is not a file of BBQ. Use bbq:file=PATH.")
    remedy = "Use BBQ's own files."
    prompts = [
        prompt
        for each in paths
        for prompt in read_each(
            each, read_rows(each, ["question"]), _prompt, what="examples", remedy=remedy
        )
    ]
    labels = [{option.label for option in prompt.options} for prompt in prompts]
    neither = sum("biased" not in of_prompt for of_prompt in labels)
    warning = (
        f"{counted(neither, 'example')} without a single stereotyped person: they are in "
        "accuracy, and in no bias score"
    )
    return PromptSet(
        "bbq", tuple(prompts), whole_options=True, warnings=(warning,) if neither else ()
    )


def _prompt(row: Mapping[str, Any]) -> Prompt:
    groups, info = row.get("additional_metadata"), row.get("answer_info")
    invalid = [name for name in _TEXTS if not isinstance(row.get(name), str) or not row[name]]
    invalid += [name for name in ("example_id", "question_index") if row.get(name) is None]
    invalid += [] if row.get("question_polarity") in POLARITIES else ["question_polarity"]
    invalid += [] if row.get("context_condition") in CONTEXTS else ["context_condition"]
    invalid += [] if row.get("label") in (0, 1, 2) else ["label"]
    invalid += [] if isinstance(groups, Mapping) else ["additional_metadata"]
    invalid += [] if isinstance(info, Mapping) and {*ANSWERS} <= {*info} else ["answer_info"]
    if invalid or not isinstance(groups, Mapping) or not isinstance(info, Mapping):
        name = (*invalid, "answer_info")[0]
        raise PromptError(f"not a BBQ example: {name} is {shown(row.get(name))}")
    labels = _labels(info, groups.get("stereotyped_groups") or (), row["question_polarity"])
    return Prompt(
        f"{row['category']}-{row['example_id']}",
        f"{row['context']}\n\nQ: {row['question']}\nA:",
        tuple(Option(label, f" {row[name]}") for label, name in zip(labels, ANSWERS, strict=True)),
        answer=labels[int(row["label"])],
        columns={
            "category": row["category"],
            "context": row["context_condition"],
            "polarity": row["question_polarity"],
            "template": f"{row['category']} {row['question_index']}",
        },
    )


def _labels(info: Mapping[str, Any], groups: Any, polarity: str) -> list[str]:
    """The labels of the three answers, from the groups that each is about.

    The second entry of an answer is its group; nationalities are the first.
    """
    about = [[str(entry).lower() for entry in info[name]] for name in ANSWERS]
    people = [at for at, entries in enumerate(about) if entries[-1:] != ["unknown"]]
    if len(people) != 2:
        raise PromptError(f"not a BBQ example: {len(people)} answers are about people")
    names = {str(group).lower() for group in groups}
    labels = ["unknown"] * 3
    for entry in (1, 0):
        stereotyped = [
            at for at in people if about[at][entry : entry + 1] and about[at][entry] in names
        ]
        if len(stereotyped) == 1:
            for at in people:
                expected = (at in stereotyped) == (polarity == "neg")
                labels[at] = "biased" if expected else "other"
            return labels
    for number, at in enumerate(people, 1):
        labels[at] = f"person {number}"
    return labels


KNOWN = KnownSet(
    pattern="bbq",
    about="BBQ: questions about two people, with and without the answer in the context, from its "
    "files",
    size="of the file",
    license="CC BY 4.0",
    analysis="bbq",
    make=bbq,
    options=(SetOption("file", "PATH", "a JSONL file of BBQ, or a folder of them", str),),
)

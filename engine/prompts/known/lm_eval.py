"""Requests of lm-evaluation-harness: each distinct pair of context and continuation is a prompt."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logitbank.engine.prompts.known_set import KnownSet, SetOption, count_or_all, whole_number
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.scoring import request_tokens, rolling_tokens
from logitbank.engine.prompts.values import Prompt, Scalar
from logitbank.wording import counted

if TYPE_CHECKING:
    from logitbank.harness import Request, Tasks

PREFIX = "lm-eval:"


def lm_eval(
    name: str, data: Path | None = None, *, include: str | None = None, **options: Any
) -> Iterator[PromptSet]:
    """A prompt set for each task of a name of the harness, which builds the requests.

    Columns: `lm_eval` (the name and the options that choose requests), `task`, `task_version`,
    `task_config` (a digest), `num_fewshot`, `fewshot_seed`, `limit` (if set), and `target`, the
    continuation; null for a rolling log-likelihood, which scores the whole text.

    Raises
    ------
    MissingExtraError
        lm_eval is not installed.
    UsageError
        As `logitbank.harness.load_tasks`; a task that generates text.
    """
    from logitbank.harness import FEWSHOT_SEED, load_tasks

    if options.get("limit") == "all":
        del options["limit"]
    tasks = load_tasks(name, include=include, **options)
    written = ",".join(f"{key}={value}" for key, value in sorted(options.items()))
    suffix = f":{written}" if written else ""
    for task, own in tasks.tasks.items():
        columns: dict[str, Scalar] = {
            "lm_eval": name + suffix,
            "task": task,
            "task_version": tasks.version(task),
            "task_config": tasks.digest(task),
            "num_fewshot": own.get_config("num_fewshot"),
            "fewshot_seed": options.get("fewshot_seed", FEWSHOT_SEED),
        }
        if "limit" in options:
            columns["limit"] = options["limit"]
        full = PREFIX + name + ("" if task == name else f"/{task}") + suffix
        yield _prompt_set(full, tasks, task, columns)


def _prompt_set(name: str, tasks: "Tasks", task: str, columns: Mapping[str, Scalar]) -> PromptSet:
    from logitbank.harness import request_of

    instances = tasks.instances(task)
    prompts: dict[Request, Prompt] = {}
    for number, instance in enumerate(instances):
        request = request_of(instance)
        if request not in prompts:
            prompt_id = f"{instance.doc_id}-{number}"
            prompts[request] = _prompt(prompt_id, *request, columns)
    documents = len({instance.doc_id for instance in instances})
    contexts = len({context for context, _ in prompts})
    note = (
        f"{name}: {counted(documents, 'document')}, {counted(len(instances), 'request')}, "
        f"{len(prompts):,} of them distinct, {counted(contexts, 'context')}"
    )
    return PromptSet(name, tuple(prompts.values()), notes=(note,))


def _prompt(
    prompt_id: str, context: str, target: str | None, columns: Mapping[str, Scalar]
) -> Prompt:
    if target is None:
        own = {**columns, "target": None}
        return Prompt(prompt_id, context, columns=own, scored=rolling_tokens)
    return Prompt(
        prompt_id,
        context + target,
        columns={**columns, "target": target},
        scored=request_tokens,
        parts={"context": context, "target": target},
    )


KNOWN = KnownSet(
    pattern="lm-eval:TASK",
    prefix=PREFIX,
    about="tasks of lm-evaluation-harness, for causal models",
    size="of the task",
    license="of the task",
    analysis="lm-eval",
    make=lm_eval,
    options=(
        SetOption("num_fewshot", "that of the task", "examples before a document", whole_number),
        SetOption("limit", "all", "documents of each task, or all", count_or_all),
        SetOption("fewshot_seed", "1234", "choice of examples", whole_number),
        SetOption("include", "none", "folder with your own tasks, whose Python runs", str),
    ),
)

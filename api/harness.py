"""lm-evaluation-harness: its tasks and their requests, and a bank in the place of its model.

It needs the extra `lm-eval`. `BankLM` answers requests from a bank, for
`lm_eval.simple_evaluate(model=…)`.
"""

import io
import json
import logging
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl

from logitbank.errors import AbsentError, LogitbankError, MissingExtraError, UsageError
from logitbank.store.bank import Bank
from logitbank.store.format.schema import json_digest
from logitbank.store.steps import Step
from logitbank.wording import checkpoint_name

if TYPE_CHECKING:
    from logitbank.analysis.frames.prompt_sums import PromptSums
    from logitbank.analysis.frames.reader import Scores

try:
    from lm_eval.api.model import LM
except ImportError as error:
    raise MissingExtraError(
        "Tasks of lm-evaluation-harness need lm_eval. Fix: pip install 'logitbank[lm-eval]'"
    ) from error

T = TypeVar("T")
PREFIX = "lm-eval:"
"""Beginning of the names of prompt sets with requests of a task."""
FEWSHOT_SEED = 1234
"""The harness's own seed of few-shot examples."""
_RANDOM_SEED, _NUMPY_SEED = 0, 1234
"""Seeds that `simple_evaluate` sets before it loads tasks."""
_SERIAL = "DISABLE_MULTIPROC"
ROLLING = "loglikelihood_rolling"
SUPPORTED = ("loglikelihood", ROLLING)
"""Types of requests that log-probabilities of tokens answer."""
_NAMED = 8
_OWN_TASKS = (
    " For tasks of your own, name their folder: include=FOLDER in a prompt set, --include in an "
    "analysis, or LOGITBANK_TASKS."
)
_OFFLINE = " Without a network, run `logitbank fetch` with the same --prompts elsewhere first."

Request = tuple[str, str | None]
"""Context and continuation; a text and None for a rolling log-likelihood."""
Answer = tuple[float, bool]
"""Log-probability in nats, and whether greedy decoding writes the continuation."""


@dataclass(slots=True)
class Tasks:
    """The tasks under one name of the harness, set up as `simple_evaluate` does, and its groups."""

    name: str
    tasks: dict[str, Any]
    groups: dict[str, Any]
    limit: int | None = None
    """Documents of each task; all if None."""
    _built: set[str] = field(default_factory=set)

    def instances(self, task: str) -> Sequence[Any]:
        """The requests of a task, built once. Answers to them are removed.

        Raises
        ------
        UsageError
            The task generates text.
        """
        own = self.tasks[task]
        if task not in self._built:
            self._require_scored({name: [each.OUTPUT_TYPE] for name, each in self.tasks.items()})
            with quiet(), _explained(f"The requests of {task} cannot be built"):
                own.build_all_requests(limit=self.limit)
            self._require_scored({task: [each.request_type for each in own.instances]})
            # `evaluate` builds them for each model: here they are the same for all checkpoints.
            own.build_all_requests = lambda **_: None
            self._built.add(task)
        for each in own.instances:
            each.resps, each.filtered_resps = [], {}
        instances: Sequence[Any] = own.instances
        return instances

    def evaluate(
        self, answers: Mapping[Request, Answer], names: Sequence[str], *, bank: str, bootstrap: int
    ) -> dict[str, Any]:
        """The harness's results and samples of some of the tasks, from answers of one checkpoint.

        Parameters
        ----------
        bank
            Their source, for errors.
        bootstrap
            Resamples for standard errors without a formula.

        Raises
        ------
        AbsentError
            A request has no answer.
        UsageError
            A task cannot process its results.
        """
        from lm_eval.evaluator import evaluate

        for name in names:
            self.instances(name)
        groups = {
            name: group
            for name, group in self.groups.items()
            if {task.task_name for task in group.get_all_tasks()} <= {*names}
        }
        chosen = {"tasks": {name: self.tasks[name] for name in names}, "groups": groups}
        lm = BankLM.of(answers, bank=bank)
        with quiet(), _explained(f"The results of {', '.join(names)} cannot be processed"):
            found: dict[str, Any] = evaluate(
                lm, chosen, limit=self.limit, bootstrap_iters=bootstrap, log_samples=True
            )
        return found

    def means(self, task: str) -> list[str]:
        """The metrics of a task that are means over documents, in its order."""
        from lm_eval.api.metrics import mean

        return [name for name, each in self.tasks[task].aggregation().items() if each is mean]

    def chance(self, task: str) -> float | None:
        """The accuracy of guessing one of the choices; None for other kinds of tasks."""
        own = self.tasks[task]
        if own.OUTPUT_TYPE != "multiple_choice" or own.config.process_results is not None:
            return None
        if own.multiple_target:
            return None
        number = Counter(each.doc_id for each in self.instances(task))
        twice = 2 if "acc_mutual_info" in own.aggregation() else 1
        return sum(twice / each for each in number.values()) / len(number)

    def version(self, task: str) -> str:
        """The version that a task names."""
        return str(self.tasks[task].VERSION)

    def digest(self, task: str) -> str:
        """The beginning of the SHA-256 of a task's configuration."""
        config = dict(self.tasks[task].dump_config())
        metadata = dict(config.pop("metadata", None) or {})
        metadata.pop("config_source", None)  # a path on this machine
        text = json.dumps([config, metadata], default=str)
        return json_digest(re.sub(r" at 0x[0-9a-f]+", "", text))[:16]  # addresses of functions

    def _require_scored(self, types: Mapping[str, Sequence[str]]) -> None:
        """Refuse tasks with requests that log-probabilities do not answer."""
        known = (*SUPPORTED, "multiple_choice")
        other = [name for name, own in types.items() if not {*own} <= {*known}]
        if not other:
            return
        rest = [f"--prompts {PREFIX}{name}" for name in self.tasks if name not in other]
        fix = f"Extract the other tasks: {' '.join(rest)}" if rest else "Choose another task."
        raise UsageError(
            f"Tasks that generate text (generate_until): {', '.join(other)}. A bank contains "
            f"log-probabilities only. {fix}"
        )


def load_tasks(
    name: str,
    *,
    include: str | Path | None = None,
    num_fewshot: int | None = None,
    fewshot_seed: int | None = None,
    limit: int | None = None,
) -> Tasks:
    """The tasks of a task, group or tag of the harness, with their data.

    Parameters
    ----------
    include
        Folder with tasks of your own, whose Python functions run; by default that of the
        environment variable `LOGITBANK_TASKS`.
    num_fewshot
        Number of examples before each document; by default that of each task. As in the harness, a
        task that sets 0 keeps it.
    fewshot_seed
        Seed of the choice of examples; by default that of the harness.
    limit
        Number of documents of each task; all if None.

    Raises
    ------
    UsageError
        No such task, a folder that does not exist, or data that cannot be loaded.
    """
    include = task_folder(include)
    with quiet():
        manager = _manager_with(name, include)
    if name not in manager.all_tasks:
        close = get_close_matches(name, manager.all_tasks, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "list them with `lm-eval ls`"
        own = "" if include else _OWN_TASKS
        raise UsageError(f"Unknown task of lm-evaluation-harness {name!r} ({hint}).{own}")
    with quiet(), _seeded(), _explained(f"{name} cannot be loaded", _OFFLINE):
        loaded = manager.load([name])
        for task in loaded["tasks"].values():
            default = task.get_config("num_fewshot")
            if num_fewshot is not None and default != 0:
                task.set_config(key="num_fewshot", value=num_fewshot)
            elif default is None:
                task.set_config(key="num_fewshot", value=0)
            task.set_fewshot_seed(seed=FEWSHOT_SEED if fewshot_seed is None else fewshot_seed)
    return Tasks(name, loaded["tasks"], loaded["groups"], limit)


def task_folder(include: str | Path | None) -> str | None:
    """The folder with tasks of the user: `include`, or that of the environment.

    Raises
    ------
    UsageError
        It does not exist.
    """
    include = include or os.environ.get("LOGITBANK_TASKS")
    if include is not None and not Path(include).is_dir():
        raise UsageError(f"Folder {include} with tasks does not exist.")
    return None if include is None else str(Path(include).resolve())


def _manager_with(name: str, folder: str | None) -> Any:
    """The index of the folder; or of the harness and the folder, if the name needs it."""
    from lm_eval.tasks import TaskManager

    if folder is not None:
        own = TaskManager(include_path=folder, include_defaults=False)
        if _has_all(own, name):
            return own
    return _whole_index(folder)


@cache
def _whole_index(folder: str | None) -> Any:
    """The index of the harness and of a folder, which takes seconds to read."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=folder)


def _has_all(manager: Any, name: str) -> bool:
    """Whether an index has a task, or a group with all its tasks."""
    if name not in manager.all_groups:
        return name in manager.all_subtasks
    members = manager.task_index[name].cfg.get("task", [])
    return all(isinstance(each, str) and _has_all(manager, each) for each in members)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the harness's progress bars, prints, log and processes of its own."""
    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    before = os.environ.get(_SERIAL)
    os.environ[_SERIAL] = "1"  # its processes are forks, and this one has threads
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        os.environ.pop(_SERIAL)
        os.environ.update({} if before is None else {_SERIAL: before})


@contextmanager
def _seeded() -> Iterator[None]:
    """With the random state that tasks are loaded with in the harness."""
    states = random.getstate(), np.random.get_state()
    random.seed(_RANDOM_SEED)
    np.random.seed(_NUMPY_SEED)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


@contextmanager
def _explained(problem: str, fix: str = "") -> Iterator[None]:
    """An error of a task's own code, or of `datasets`, as one sentence."""
    try:
        yield
    except LogitbankError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise UsageError(f"{problem} ({reason}).{fix}") from error


def save_results(
    results: Mapping[str, Any],
    folder: str | Path,
    *,
    model: str,
    run: str,
    step: Step,
    settings: Mapping[str, Any],
) -> Path:
    """Write results and samples of one checkpoint as the harness does; return the results file.

    `settings` are added to the configuration in the file.

    Raises
    ------
    LogitbankError
        The harness did not write them.
    """
    from lm_eval import __version__ as version
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.utils import sanitize_model_name

    revision = "main" if step is None else f"step{step}"
    parts = [model, *([] if run == "main" else [run]), "release" if step is None else revision]
    document = {key: value for key, value in results.items() if key != "samples"}
    document |= {
        "config": {
            "model": "logitbank",
            "model_args": {"pretrained": model, "revision": revision},
            **settings,
        },
        "date": time.time(),
        "lm_eval_version": version,
        "logitbank": {"model": model, "run": run, "step": step},
    }
    samples = results["samples"]
    with quiet():
        tracker = EvaluationTracker(output_path=str(folder))
        general = tracker.general_config_tracker
        general.model_source = "logitbank"
        general.model_name = "-".join(parts)
        general.model_name_sanitized = sanitize_model_name(general.model_name)
        tracker.save_results_aggregated(document, samples)
        for task, own in samples.items():
            tracker.save_results_samples(task, own)
    own_folder = Path(folder) / str(general.model_name_sanitized)
    date = getattr(tracker, "date_id", "")
    names = [f"results_{date}.json", *(f"samples_{task}_{date}.jsonl" for task in samples)]
    if lacking := [name for name in names if not (own_folder / name).is_file()]:
        raise LogitbankError(f"{own_folder / lacking[0]} cannot be written. Check the folder.")
    return own_folder / names[0]


def request_of(instance: Any) -> Request:
    """The request of an `Instance`.

    Raises
    ------
    UsageError
        It has images or sound.
    """
    if instance.request_type == ROLLING:
        return str(instance.args[0]), None
    if len(instance.args) != 2:
        raise UsageError(f"Task {instance.task_name!r} has inputs other than text. Leave it out.")
    context, continuation = instance.args
    return str(context), str(continuation)


def request_at(text: str, target: str | None) -> Request:
    """The request that a prompt of a bank stands for.

    >>> request_at("Is it? yes", " yes"), request_at("A text.", None)
    (('Is it?', ' yes'), ('A text.', None))
    """
    return (text, None) if target is None else (text[: len(text) - len(target)], target)


class BankLM(LM):  # type: ignore[misc]
    """A model of the harness that answers requests from a bank.

    `lm_eval.simple_evaluate(model=BankLM("b.zarr", step=1000), tasks=["arc_easy"])`

    Parameters
    ----------
    bank
        Folder or URL of a bank with prompt sets `lm-eval:…`, or an open bank.
    model, run, step
        The checkpoint; each may be left out if the bank has only one.

    Raises
    ------
    AbsentError
        The bank has no such checkpoint, several to choose from, or no requests of the harness.
    """

    def __init__(
        self,
        bank: str | Path | Bank,
        model: str | None = None,
        run: str | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__()
        opened = bank if isinstance(bank, Bank) else Bank.open(bank, prompts=[])
        sets = [name for name in opened.prompt_sets if name.startswith(PREFIX)]
        if not sets:
            raise AbsentError(
                f"{opened.address} has no requests of the harness. Fix: logitbank extract "
                f"{opened.address} --suite … --prompts {PREFIX}TASK"
            )
        if not isinstance(bank, Bank):  # of one at a URL, only these scores are copied
            own = None if model is None else [model]
            steps = None if step is None else [step]
            opened = Bank.open(bank, prompts=sets, models=own, steps=steps)
        chosen = _chosen(opened, sets, {"model": model, "run": run, "step": step})
        self.bank, self.where = opened.address, f"{opened.address} ({checkpoint_name(chosen)})"
        self.answers: Mapping[Request, Answer] = {}
        for name in sets:
            self.answers = {**self.answers, **_answers(opened, name, chosen)}

    @classmethod
    def of(cls, answers: Mapping[Request, Answer], *, bank: str) -> "BankLM":
        """A model with these answers; errors name the bank as their source."""
        made: BankLM = cls.__new__(cls)
        LM.__init__(made)
        made.answers, made.bank, made.where = answers, bank, bank
        return made

    def loglikelihood(self, requests: Sequence[Any], **_: Any) -> list[Answer]:
        """The sum of a continuation's log-probabilities (nats), and whether it is greedy.

        A token with the largest logit that shares it with another is not greedy.

        Raises
        ------
        AbsentError
            The bank does not have one of the requests.
        """
        return [self._answer(request) for request in requests]

    def loglikelihood_rolling(self, requests: Sequence[Any], **_: Any) -> list[float]:
        """The sum of a text's log-probabilities in nats, window by window; as `loglikelihood`."""
        return [self._answer(request)[0] for request in requests]

    def generate_until(self, requests: Sequence[Any], **_: Any) -> list[str]:
        """Refused: a bank contains no generated text."""
        raise UsageError(
            f"Task {requests[0].task_name!r} generates text, and {self.bank} contains "
            "log-probabilities only. Leave it out."
        )

    def _answer(self, instance: Any) -> Answer:
        request = request_of(instance)
        if (answer := self.answers.get(request)) is not None:
            return answer
        text = ", ".join(repr(each if len(each) <= 60 else f"…{each[-60:]}")
                         for each in request if each is not None)  # fmt: skip
        raise AbsentError(
            f"The request ({text}) of task {instance.task_name!r} is not in {self.where}. Fix: "
            f"logitbank extract {self.bank} --suite … --prompts {PREFIX}{instance.task_name}, with "
            "the num_fewshot, fewshot_seed and limit of this evaluation"
        )


def _chosen(bank: Bank, sets: Sequence[str], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The checkpoint that is asked for, with scores of a request."""
    found = {d.checkpoint for name in sets for d in bank.deposits(prompts=name)}
    for key, value in asked.items():
        if value is not None:
            found = {each for each in found if getattr(each, key) == value}
    wanted = ", ".join(f"{key} {value}" for key, value in asked.items() if value is not None)
    if not found:
        raise AbsentError(f"{bank.address} has no checkpoint with {wanted or 'requests'}.")
    for key in asked:
        values = sorted({str(getattr(each, key)) for each in found})
        if len(values) > 1:
            listed = ", ".join(values[:_NAMED]) + ", …" * (len(values) > _NAMED)
            raise AbsentError(f"{bank.address} has several values of {key}. Name one: {listed}.")
    (only,) = found
    return {key: getattr(only, key) for key in asked}


def _answers(bank: Bank, name: str, checkpoint: Mapping[str, Any]) -> dict[Request, Answer]:
    """The answers of one checkpoint to the requests of a prompt set that are scored completely."""
    from logitbank.analysis.frames.reader import Scores

    scores = Scores(
        [bank], (name,), [checkpoint["model"]], steps=[checkpoint["step"]], runs=[checkpoint["run"]]
    )
    if not [*scores.holding()]:
        return {}
    return answers(pl.concat(request_sums(scores, lambda found: found.rows)))


def request_sums(scores: "Scores", reduce: "Callable[[PromptSums], T]") -> list[T]:
    """`reduce` of the requests of a prompt set, of a few checkpoints at a time.

    Columns text, target, logprob (nats, the sum over tokens), and `correct`: whether greedy
    decoding writes the continuation.
    """
    from logitbank.analysis.frames.prompt_sums import greedy_match

    return scores.map_prompts(
        reduce, "text", "target", family="lm-evaluation-harness", more=greedy_match()
    )


def answers(sums: pl.DataFrame) -> dict[Request, Answer]:
    """Answers from the rows of `request_sums`."""
    rows = sums.select("text", "target", "logprob", "correct").iter_rows()
    return {request_at(text, target): (logprob, greedy) for text, target, logprob, greedy in rows}

"""A callback of transformers' Trainer: what a training saves is run at once."""

import copy
import logging
import os
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

from logitbank.engine.backends.protocol import ComputeDtype, EngineSettings
from logitbank.engine.gpus.refusals import check_precision
from logitbank.engine.plan.engine import choose_engine
from logitbank.engine.plan.extraction import Extraction
from logitbank.engine.plan.levels import asked_level
from logitbank.engine.plan.plan import Plan
from logitbank.engine.plan.prepare import prepare
from logitbank.engine.prompts.registry import Prompts, prompt_sets
from logitbank.engine.run import run
from logitbank.engine.suites.suites import Checkpoint, LocalSource, Suite
from logitbank.engine.tokenizers.tokenizer import tokenizer_folder
from logitbank.engine.workers.events import OnEvent, Summary, add_summary
from logitbank.engine.workers.stopping import Stopping
from logitbank.engine.workers.worker_process import WorkerProcess, log_of_run
from logitbank.errors import LogitbankError, UsageError
from logitbank.store import Bank
from logitbank.store.files.objects import holds_something
from logitbank.store.format.schema import CheckpointId, Dtype
from logitbank.store.remote.urls import require_folder
from logitbank.store.steps import Step, run_seed

_log = logging.getLogger("logitbank")


class BankCallback:
    """Runs every checkpoint that transformers' `Trainer` saves over prompts, into a bank.

    Give it to `Trainer(callbacks=[…])`. At each save the training waits while the saved folder is
    run, as `extract` would run it, by an engine in a process of its own, which stays loaded until
    the training ends: the numbers are those of `extract`, and the model, its optimizer and all
    random states are not touched. Of several processes of a training, only the main one does it.

    The prompts are compared with the model and its tokenizer before the first step. What goes
    wrong later does not end a training: it is logged as a warning of the logger `logitbank`, and
    `extract` on the folder makes up for it.

    Parameters
    ----------
    bank
        Folder of the bank; made if it is not there.
    prompts, data, keep, dtype, layers, compute_dtype
        As in `extract`.
    deterministic, canary_every, trust_remote_code
        As in `extract`.
    model
        Name to store the model under; otherwise that of the folder that the training saves to.
    run
        Name of this training among several of the model, such as `seed3`.
    engine
        As in `extract`; transformers unless another is asked for, as it takes no more memory than
        it needs beside a training.
    title, licence, citation
        Of a new bank.
    on_event
        Called with every event of the runs.

    Raises
    ------
    LogitbankError
        The prompts or the bank cannot be used; from the training's beginning on, where prompts do
        not fit its model, or it saves no tokenizer.
    """

    summary: Summary
    """What has been done so far."""

    def __init__(
        self,
        bank: str | Path,
        *,
        prompts: Prompts | Sequence[Prompts],
        model: str | None = None,
        run: str = "main",
        data: Path | None = None,
        engine: Literal["auto", "vllm", "transformers"] = "transformers",
        keep: str = "full",
        dtype: Dtype | None = None,
        layers: str = "",
        compute_dtype: ComputeDtype = "float32",
        deterministic: bool = False,
        canary_every: int = 50,
        trust_remote_code: bool = False,
        title: str = "",
        licence: str = "",
        citation: str = "",
        on_event: OnEvent = lambda _: None,
    ) -> None:
        require_folder(bank)
        level = asked_level(keep, dtype, layers=layers)
        self._path, self._model, self._run = Path(bank), model, run
        self._about = {"title": title, "licence": licence, "citation": citation}
        self._on_event = on_event
        self._settings = EngineSettings(
            choose_engine(engine, deterministic=deterministic),
            compute_dtype=compute_dtype,
            deterministic=deterministic,
            canary_every=canary_every,
            trust_remote_code=trust_remote_code,
        )
        check_precision(self._settings, os.environ)
        self._define = partial(
            Extraction,
            prompt_sets=prompt_sets(prompts, data=data, old={}),
            settings=self._settings,
            any_engine=engine == "auto",
            keep=level.keep,
            dtype=level.dtype,
            any_level=level.any_level,
            layers=layers,
            occasion="callback",
        )
        self.summary = Summary(Plan((), 0, 0, 0))
        self._workers: Sequence[WorkerProcess] = ()
        self._ends = ExitStack()
        weakref.finalize(self, self._ends.close)  # where a training ends without saying so

    def __getattr__(self, name: str) -> Any:
        # `Trainer` calls a method for each of its events. That they are inherited from its own
        # class would need transformers where this module is only imported.
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(f"BankCallback has no attribute {name!r}")

    def on_train_begin(
        self,
        args: Any,
        state: Any,
        control: Any,
        model: Any = None,
        processing_class: Any = None,
        **_: Any,
    ) -> None:
        """Refuse prompts that do not fit the model, while that costs nothing."""
        output = Path(args.output_dir).resolve()
        if getattr(model, "peft_config", None):
            raise UsageError(
                "BankCallback runs whole checkpoints, and this training saves adapters alone; leave"
                f" it out, and run `logitbank extract` with --follow {output} and --base beside it"
            )
        saved = output / "checkpoint-0"
        if processing_class is None:
            if tokenizer_folder(saved) == saved:
                raise UsageError(
                    f"{output} will hold no tokenizer; give Trainer(processing_class=tokenizer), "
                    "or save the tokenizer there"
                )
            return
        config = copy.deepcopy(model.config)
        config.architectures = [type(model).__name__]
        bank = Bank.open(self._path) if holds_something(self._path) else None
        with tempfile.TemporaryDirectory(prefix="logitbank-") as folder:
            config.save_pretrained(folder)
            processing_class.save_pretrained(folder)
            extraction = self._define(self._suite(output, None, Path(folder)))
            if not any(prompts.next_sentence for prompts in extraction.prompt_sets):
                prepare(bank, extraction, Path(folder))  # that head is told by weights alone

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Run the checkpoint that was just saved, and wait until it is in the bank."""
        if not state.is_world_process_zero:
            return
        output = Path(args.output_dir).resolve()
        folder = output / f"checkpoint-{state.global_step}"
        stopping = Stopping(signals=False)
        try:
            part = run(
                *(self._path, self._define(self._suite(output, state.global_step, folder))),
                about=self._about,
                kept=self._workers or self._started(),
                stopping=stopping,
                on_event=self._on_event,
            )
        except (LogitbankError, OSError) as error:
            _log.warning("%s is not in %s: %s", folder, self._path, error)
            return
        add_summary(self.summary, part)
        if part.interrupted:
            self._ends.close()
            raise KeyboardInterrupt
        for failure in part.failed:
            _log.warning("%s is not in %s: %s", folder, self._path, failure.message)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the engine."""
        self._workers = ()
        self._ends.close()

    def _suite(self, output: Path, step: Step, folder: Path) -> Suite:
        """One checkpoint, named as `extract` names it that finds it in the training's folder."""
        name = self._model or output.name
        checkpoint = CheckpointId(name, self._run, step, run_seed(self._run))
        return Suite(name, (Checkpoint(checkpoint, LocalSource(folder)),))

    def _started(self) -> Sequence[WorkerProcess]:
        self._ends.enter_context(log_of_run(self._path, alone=True))()
        self._workers = [self._ends.enter_context(WorkerProcess(self._path, self._settings))]
        return self._workers


def _nothing(*_: Any, **__: Any) -> None:
    """What is done about events of a training that concern no checkpoint."""

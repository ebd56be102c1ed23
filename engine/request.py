"""What an extraction is asked to do: one value that validates itself and knows all defaults."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from logitbank.engine.backends.protocol import ComputeDtype
from logitbank.engine.plan.engine_choice import batch_limits
from logitbank.engine.plan.levels import parse_keep
from logitbank.engine.plan.sharding import Shard
from logitbank.engine.prompts.registry import Prompts
from logitbank.engine.suites.prefetch import parse_bytes
from logitbank.engine.suites.suites import Suite
from logitbank.errors import UsageError
from logitbank.store.format.schema import Dtype
from logitbank.store.steps import parse_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractRequest:
    """The arguments of `extract`, checked as far as neither files nor machines are needed.

    Raises
    ------
    UsageError
        A value that is invalid, or two that exclude each other.
    """

    suite: str | Path | Suite
    """A known name, `owner/repo` on the hub, a local folder of checkpoints, or a Suite."""
    prompts: Prompts | Sequence[Prompts]
    """A known set (`winobias`, `professions`, `lambada`, …) or a JSONL, CSV or Parquet file, with
    options of its own after a colon (`winobias:orders=all,splits=dev`); a PromptSet or SequenceSet;
    or several of these."""
    steps: str = "all"
    """`all`, `log`, `START:STOP:STRIDE`, a list such as `0,512,last`, or `release`."""
    watch: bool = False
    """Look at the suite's folder every minute, and run each checkpoint once it is complete, until
    interrupted."""
    data: Path | None = None
    """Folder with public data; otherwise `LOGITBANK_DATA`, otherwise downloaded."""
    language: str = ""
    """Language adapter for the prompts, for models that have adapters. The prompt set is stored as
    `NAME@LANGUAGE`."""
    adapter_from: str | Path | None = None
    """Checkpoint whose adapter for `language` is put into models without one: a folder, or
    `owner/repo` on the hub."""
    model: str | None = None
    """Name to store the model under; otherwise that of the suite."""
    engine: Literal["auto", "vllm", "transformers"] = "auto"
    keep: str = "full"
    """`full`, `hidden`, `topk:K` or `options`; `auto` takes `full` or `hidden`, whichever is
    smaller, LM heads included."""
    dtype: Dtype | None = None
    """Of the stored log-probabilities, otherwise float16, or hidden states, otherwise float32, as
    with `auto`. Ranks and log-sum-exp are computed before rounding."""
    compute_dtype: ComputeDtype = "float32"
    """Of the model's body; its head and all reductions are float32. `tf32` is float32 with TF32
    products, on an NVIDIA GPU from Ampere on."""
    deterministic: bool = False
    """The same bits in any batch: with vLLM's batch-invariant kernels on a GPU, and elsewhere with
    transformers, one sequence at a time."""
    canary_every: int = 50
    """Check a few sequences with plain transformers at the first checkpoint and every so many; 0
    for never."""
    batch_tokens: int | None = None
    """Most tokens of one forward pass. Otherwise 4,096, or on a GPU as many as its memory holds;
    halved when memory runs out. Numbers depend on it in the last bits at most."""
    trust_remote_code: bool = False
    title: str = ""
    licence: str = ""
    citation: str = ""
    """Of a new bank. `describe` changes those of an existing one."""
    disk_budget: str | int | None = None
    """Most disk space of downloads, in bytes or as `100GB`. Each is deleted when its checkpoint is
    done. What was in the cache before stays."""
    workers: int | Literal["auto"] | None = None
    """Engines that run side by side, each on its own GPU or part of the cores; `auto` takes one for
    each GPU. Otherwise one, or `auto` on a Ray cluster."""
    shard: str | None = None
    """`i/n`: this run's part, when n runs fill one bank; otherwise that of a SLURM array."""
    ray: str | None = None
    """Address of a Ray cluster for the workers, `HOST:PORT`; `auto` takes the one of this machine,
    or starts one here. All its machines must see the bank and the checkpoints."""

    def __post_init__(self) -> None:
        excluded = {"disk-budget": self.disk_budget, "shard": self.shard, "ray": self.ray}
        if self.watch and (others := [name for name, value in excluded.items() if value]):
            raise UsageError(f"--{others[0]} needs all checkpoints: leave it out with --watch.")
        if self.watch and isinstance(self.suite, Suite):
            raise UsageError("--watch needs a folder of checkpoints: give it as --suite.")
        if self.compute_dtype not in get_args(ComputeDtype):
            allowed = ", ".join(get_args(ComputeDtype))
            raise UsageError(f"--compute-dtype {self.compute_dtype!r} is invalid: use {allowed}.")
        if self.canary_every < 0:
            raise UsageError(f"--canary-every {self.canary_every} is invalid: use 0 or more.")
        parse_keep(self.keep, self.dtype)
        parse_steps(self.steps)
        batch_limits(self.batch_tokens)
        if self.disk_budget is not None:
            parse_bytes(self.disk_budget)
        if self.shard is not None:
            Shard.parse(self.shard)

    @property
    def about(self) -> dict[str, str]:
        """Title, licence and citation of a new bank."""
        return {"title": self.title, "licence": self.licence, "citation": self.citation}

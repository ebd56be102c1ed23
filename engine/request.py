"""The options of an extraction: one value that validates itself and knows all defaults."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from logitbank.engine.backends.engine import engine_named
from logitbank.engine.backends.protocol import ComputeDtype
from logitbank.engine.plan.sharding import Shard
from logitbank.engine.prompts.registry import Prompts
from logitbank.engine.suites.prefetch import parse_bytes
from logitbank.engine.suites.suites import Suite
from logitbank.errors import SuiteError, UsageError
from logitbank.store.format.schema import Dtype, Keep
from logitbank.store.steps import Steps, parse_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractRequest:
    """The options of `extract`, validated as far as neither files nor machines are needed.

    Raises
    ------
    UsageError
        A value is invalid, or two options exclude each other.
    """

    suites: str | Path | Suite | Sequence[str | Path | Suite]
    """A known name, `owner/repo` on the hub, a local folder of checkpoints, a Suite, or `@FILE`, a
    list of these; or several of them."""
    prompts: Prompts | Sequence[Prompts]
    """A known set (`winobias`, `professions`, `lambada`, …) or a JSONL, CSV or Parquet file, with
    its options after a colon (`winobias:orders=all,splits=dev`); a PromptSet; or
    several of these."""
    steps: Steps = "all"
    """`all`, `log`, `START:STOP:STRIDE`, a list such as `0,512,last`, or `release`. In Python also
    a list such as `[0, 512, None]`, in which None is the release."""
    watch: bool = False
    """Look at the suite's folder every minute, and run each checkpoint once it is complete, until
    interrupted."""
    data: Path | None = None
    """Folder with public data; by default `LOGITBANK_DATA`, or a download."""
    language: str = ""
    """Language adapter for the prompts, for models with adapters. The prompt set is stored as
    `NAME@LANGUAGE`."""
    adapter_from: str | Path | None = None
    """Checkpoint whose language adapters are used for models without one: a folder, or
    `owner/repo` on the hub."""
    model: str | None = None
    """Name to store the model of one suite under; by default that of the suite."""
    engine: str = "auto"
    """Name of an engine; `auto` takes vLLM or transformers, by the model, the prompts and the
    machine."""
    keep: str = "full"
    """`full`, `hidden`, `topk:K` or `options`."""
    dtype: Dtype | None = None
    """Dtype of stored log-probabilities, by default float16, or of stored hidden states, by default
    float32. Ranks and log-sum-exp are computed before rounding."""
    compute_dtype: ComputeDtype = "float32"
    """Dtype of the model's body; its LM head and all reductions are float32. `tf32` is float32 with
    TF32 products, on an NVIDIA GPU from Ampere on."""
    deterministic: bool = False
    """The same bits in any batch: with vLLM's batch-invariant kernels on a GPU, or with
    transformers, one sequence at a time."""
    canary_every: int = 10
    """Number of checkpoints between reference checks of a few sequences with plain transformers.
    The first two checkpoints of a worker are always checked; 0 for no check."""
    batch_tokens: int | None = None
    """Largest number of tokens in a forward pass. By default 4,096, or 8,192 on a GPU; halved
    when memory runs out. Results depend on it in the last bits at most."""
    block_rows: int | None = None
    """Number of rows that are committed together; by default chosen by size."""
    trust_remote_code: bool = False
    disk_budget: str | int | None = None
    """Largest disk space of downloads, in bytes or as `100GB`. A download is deleted when its
    checkpoint is done. Existing files of the cache are kept."""
    workers: int | str | None = None
    """Number of engines that run side by side, each on its own GPU or part of the cores; `auto` for
    one per GPU. By default 1, or `auto` on a Ray cluster."""
    shard: str | None = None
    """`i/n`: the part of this run, if n runs fill one bank; by default that of a SLURM array."""
    ray: str | None = None
    """Address of a Ray cluster for the workers, `HOST:PORT`; `auto` joins the cluster of this
    machine, or starts one. All machines must see the bank and the checkpoints."""

    def __post_init__(self) -> None:
        excluded = {"disk-budget": self.disk_budget, "shard": self.shard, "ray": self.ray}
        if self.watch and (others := [name for name, value in excluded.items() if value]):
            raise UsageError(f"--{others[0]} and --watch exclude each other. Remove one.")
        if not (listed := self.listed):
            raise SuiteError("No suite is named. Pass one or more as --suite.")
        if self.watch and (len(listed) > 1 or isinstance(listed[0], Suite)):
            raise UsageError("--watch needs one folder of checkpoints. Pass it as --suite.")
        if self.model is not None and len(listed) > 1:
            raise UsageError(
                f"--model {self.model} names one model, but there are {len(listed)} suites. Store"
                " them under their own names."
            )
        for suite in listed:
            if isinstance(suite, Suite) and not suite.checkpoints:
                raise SuiteError(f"Suite {suite.name!r} has no checkpoints.")
        if self.compute_dtype not in get_args(ComputeDtype):
            allowed = ", ".join(get_args(ComputeDtype))
            raise UsageError(f"--compute-dtype {self.compute_dtype!r} is invalid: use {allowed}.")
        for name, least in (("canary_every", 0), ("batch_tokens", 1), ("block_rows", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} {value} is invalid: use {least} or more.")
        if self.engine != "auto":
            engine_named(self.engine)
        _ = self.level
        parse_steps(self.steps)
        if self.disk_budget is not None:
            parse_bytes(self.disk_budget)
        if self.shard is not None:
            Shard.parse(self.shard)

    @property
    def listed(self) -> tuple[str | Path | Suite, ...]:
        """The suites as a tuple."""
        suites = self.suites
        return (suites,) if isinstance(suites, str | Path | Suite) else tuple(suites)

    @property
    def level(self) -> tuple[Keep, Dtype]:
        """Keep level and dtype of stored rows.

        Hidden states are float32 by default, because their rounding enters every logit.
        """
        keep = Keep.parse(self.keep)
        return keep, self.dtype or ("float32" if keep.array == "hidden" else "float16")

"""The protocol of an engine: load a checkpoint, prove it, score queries into a sink."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from logitbank.store.format.heads import OutputHead
from logitbank.store.format.schema import Head, Json, Query

if TYPE_CHECKING:
    import torch

EngineName = str
"""Name of an engine: that of the `ENGINE` in its folder."""
Task = Literal["causal", "masked"]
"""A model's task: to predict the next token or a masked token."""
ComputeDtype = Literal["float32", "tf32", "bfloat16", "float16"]
"""Dtype of a body. tf32 is float32 that a GPU multiplies as TF32: ten bits of each factor."""


class EngineStart(NamedTuple):
    """The part of the settings that decides a worker's imports, known before the plan is ready."""

    engine: EngineName
    compute_dtype: ComputeDtype = "float32"
    deterministic: bool = False
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How an engine runs; made once for each suite, in its plan."""

    engine: EngineName
    task: Task = "causal"
    next_sentence: bool = False
    """Whether a masked model's next-sentence head is also used."""
    hidden: bool = False
    """Whether hidden states are returned with logits, and heads with `load`."""
    compute_dtype: ComputeDtype = "float32"
    """Dtype of the body; LM heads and all reductions are float32, without TF32."""
    max_batch_tokens: int = 4096
    max_sequences: int = 64
    gpu_memory: int | None = None
    """Bytes that each engine may use on a GPU; None for all that is free."""
    max_length: int = 512
    """Length of the longest sequence."""
    deterministic: bool = False
    """Results do not depend on the batch, bit for bit: vLLM's batch-invariant kernels, or one
    sequence at a time in transformers."""
    canary_every: int = 10
    """Run the reference check at the first two checkpoints and every n-th; 0 for never."""
    trust_remote_code: bool = False
    adapter_from: Path | None = None
    """Folder of the checkpoint whose language adapters are used for models without them."""
    adapter_languages: tuple[str, ...] = ()
    """Languages whose adapters are borrowed."""

    @property
    def start(self) -> EngineStart:
        """The part that a process is started with."""
        return EngineStart(
            self.engine, self.compute_dtype, self.deterministic, self.trust_remote_code
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """Report of a checkpoint that is loaded and proved."""

    weights: str
    """Content digest of the tensors."""
    vocab: int
    """Number of outputs of the head that predicts tokens."""
    seconds: float
    note: str = ""
    """A new problem that does not stop the run."""
    made: Mapping[str, Json] = field(default_factory=dict)
    """Provenance of tensors from another file: language adapters."""
    heads: Mapping[Head, OutputHead] = field(default_factory=dict)
    """The heads that are proved to give the model's logits; empty without `hidden`."""
    matrices: str = ""
    """Short digests of its matrices, as `ContentDigest.matrices`; empty if unknown."""


class Tokens(NamedTuple):
    """Number of tokens in a call of `score`."""

    requested: int
    """Tokens of all queries."""
    reused: int
    """Tokens that were not run, because a prefix cache or another query of the call covers them."""


class Sink(Protocol):
    """Receives logits that are still on the device."""

    def __call__(
        self,
        indices: Sequence[int],
        logits: "torch.Tensor",
        hidden: "torch.Tensor | None" = None,
        /,
    ) -> None:
        """`logits` (len(indices), v) float32; index i belongs to the i-th query of the call.

        A next-sentence head has `NEXT_SENTENCE_CLASSES` outputs instead of v. `hidden`
        (len(indices), width) are the head's inputs; None unless the settings have `hidden`.
        """


class Backend(Protocol):
    """One engine with one architecture loaded. Every method may raise LogitbankError."""

    def load(self, folder: Path, *, checkpoint: str, digests: Mapping[str, str] = {}) -> Loaded:
        """Replace the weights by those of `folder`, and prove it.

        `digests` are those of tensors that are already known, by name.
        """

    def score(self, queries: Sequence[Query], sink: Sink) -> Tokens:
        """Pass each query's logits to `sink`, in any order; the last row of an index counts."""

    def describe(self) -> dict[str, Json]:
        """Versions, dtypes and flags for the provenance."""

    def close(self) -> None:
        """Free the engine."""

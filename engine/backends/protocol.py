"""The protocol of an engine: load a checkpoint, prove it, score queries into a sink."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from logitbank.store.format.heads import OutputHead
from logitbank.store.format.schema import Head, Json, Query

if TYPE_CHECKING:
    import torch

EngineName = Literal["vllm", "transformers"]
Task = Literal["causal", "masked"]
"""What a model predicts: the next token, or what stands under a mask."""
ComputeDtype = Literal["float32", "tf32", "bfloat16", "float16"]
"""Of a model's body. tf32 is float32 that a GPU multiplies as TF32: ten bits of each factor."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How an engine runs. Written into every deposit's provenance as it was used."""

    engine: EngineName
    task: Task = "causal"
    many_positions: bool = False
    """One pass of a sequence answers several queries: of a causal model, contexts of which one
    begins another."""
    next_sentence: bool = False
    """The next-sentence head is asked for, beside a masked model's own."""
    hidden: bool = False
    """What each head multiplies is handed over beside its logits, and the heads with the load."""
    compute_dtype: ComputeDtype = "float32"
    """Of the model's body; the output head and all reductions are float32, without TF32."""
    device: str = "auto"
    max_batch_tokens: int = 4096
    max_sequences: int = 64
    larger_on_gpu: bool = True
    """On a GPU an engine starts with larger batches than these two."""
    max_length: int = 512
    """Longest sequence that will be asked for."""
    block_size: int = 0
    """Tokens in a block of vLLM's prefix cache. 0: the smallest, 16 on a GPU and 32 on a CPU, as
    most prompts share little more. Of WinoBias's tokens 44 % are reused with 16, 15 % with 32."""
    deterministic: bool = False
    """The same bits whatever else is in a batch: vLLM's batch-invariant kernels, or with
    transformers one sequence at a time."""
    canary_every: int = 50
    trust_remote_code: bool = False
    adapter_from: Path | None = None
    """Folder of the checkpoint whose language adapters are put into models that lack them."""
    adapter_languages: tuple[str, ...] = ()
    """Languages whose adapters are borrowed."""

    @property
    def has_prefix_cache(self) -> bool:
        """vLLM's, of keys and values, which causal models have."""
        return self.engine == "vllm" and self.task == "causal"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a backend reports of a checkpoint that it has loaded and proved."""

    weights: str
    """Content digest of the tensors."""
    vocab: int
    """Outputs of the head that predicts tokens."""
    seconds: float
    note: str = ""
    """What is not as it should be, and was not so before."""
    made: Mapping[str, Json] = field(default_factory=dict)
    """What provenance says of tensors that are not the file's own: adapters of another."""
    heads: Mapping[Head, OutputHead] = field(default_factory=dict)
    """The heads that are asked for, each shown to give the model's logits; empty unless the
    settings ask for hidden states."""


class Tokens(NamedTuple):
    """What a scoring cost."""

    requested: int
    """Tokens of all queries."""
    reused: int
    """Tokens of these that were not run: a prefix cache had them, or another query had the same
    sequence."""


class Sink(Protocol):
    """Takes logits while they are still on the device."""

    def __call__(
        self,
        indices: Sequence[int],
        logits: "torch.Tensor",
        hidden: "torch.Tensor | None" = None,
        /,
    ) -> None:
        """`logits` (len(indices), v), float32; index i belongs to the i-th query asked for.

        A next-sentence head has `NEXT_SENTENCE_CLASSES` outputs in place of v. `hidden`
        (len(indices), width) are the rows that the head multiplied; None unless they are asked for.
        """


class Backend(Protocol):
    """One engine with one architecture loaded. Every method may raise LogitbankError."""

    name: EngineName

    def load(self, folder: Path, *, checkpoint: str) -> Loaded:
        """Swap in the weights of `folder` and show that they are there."""

    def score(self, queries: Sequence[Query], sink: Sink) -> Tokens:
        """Hand each query's logits to `sink`, in any order; a later row for an index wins."""

    def describe(self) -> dict[str, Json]:
        """Versions, dtypes and flags for the provenance."""

    def close(self) -> None:
        """Free the engine."""

"""A host that runs ahead of its GPU: nothing in a pass asks it to wait. No GPU is used."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from logitbank.engine.backends.hf.batches import plan_batches
from logitbank.engine.backends.hf.memory import BatchSize
from logitbank.engine.backends.hf.passes import Passes
from logitbank.engine.backends.protocol import ComputeDtype
from tests.support.checkpoints import PACKED_ARCHITECTURES, VOCAB, Architecture, make_checkpoint
from tests.support.no_questions import no_questions
from tests.support.packed_driver import loaded, tree

META = torch.device("meta")


def passes_without_data(folder: Path, dtype: ComputeDtype) -> Passes:
    """Of a checkpoint's model on a device whose tensors hold nothing."""
    backend, note = loaded(folder, dtype=dtype)
    assert note == ""
    passes = backend._passes
    assert passes is not None
    passes._model.to(META)  # type: ignore[arg-type]
    passes._device = META
    return passes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", PACKED_ARCHITECTURES)
def test_a_pass_never_asks_what_a_tensor_holds(
    architecture: Architecture,
    dtype: ComputeDtype,
    tmp_path: Path,
) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture=architecture)
    passes = passes_without_data(folder, dtype)
    queries = tree()
    batches = [*plan_batches(queries, BatchSize(4096, 64), packed=300)]
    assert len(batches) > 1
    for batch in batches:
        assert batch.shape is not None
        sent = torch.empty(batch.shape.numbers, dtype=torch.int64, device=META)
        with torch.inference_mode(), no_questions():
            logits, hidden = passes.of_packs(batch.shape, sent)
        assert logits.shape == (len(batch.queries), VOCAB)
        assert hidden is not None
        assert logits.dtype == hidden.dtype == torch.float32


QUESTIONS: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda tensor: tensor.sum().item(),
    "tolist": lambda tensor: tensor.tolist(),
    "truth": lambda tensor: bool((tensor > 0).all()),
    "nonzero": lambda tensor: tensor.nonzero(),
    "boolean index": lambda tensor: tensor[tensor > 0],
    "equal": lambda tensor: torch.equal(tensor, tensor),
    "to the host": lambda tensor: tensor.cpu(),
    "list as index": lambda tensor: tensor[[0, 1]],
    "from pageable memory": lambda tensor: torch.ones(3).to(tensor.device),
    "new from a list": lambda tensor: torch.tensor([1, 2], device=tensor.device),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_and_copies_are_found_out(question: str) -> None:
    with pytest.raises((AssertionError, RuntimeError, NotImplementedError)), no_questions():
        QUESTIONS[question](torch.empty(3, device=META))

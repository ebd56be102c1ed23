"""The transformers engine: any causal model, any device; length-sorted batches under a budget."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from logitbank.engine.backend import EngineName, EngineSettings, Loaded, Sink
from logitbank.engine.proof import Fingerprint, Ledger, add, fingerprint
from logitbank.engine.weights import ContentDigest, stream_weights
from logitbank.errors import WeightsError
from logitbank.store.schema import Json, Query


class TransformersBackend:
    """Plain transformers with one architecture resident on the device."""

    name: EngineName = "transformers"

    def __init__(self, folder: Path, settings: EngineSettings) -> None:
        self._settings = settings
        self._dtype: torch.dtype = getattr(torch, settings.compute_dtype)
        wanted = settings.device
        if wanted == "auto":
            wanted = "cuda" if torch.cuda.is_available() else "cpu"
        self._device = torch.device(wanted)
        self._model: torch.nn.Module | None = None

    def load(self, folder: Path, *, checkpoint: str) -> Loaded:
        start = time.perf_counter()
        fresh = self._read(folder, checkpoint)
        if self._model is None:
            self._model = fresh.to(self._device).eval()
            self._head = _SelectingHead(self._model)
        else:
            _copy_weights(fresh, self._model, checkpoint)
        model = self._model
        ledger = Ledger(self._dtype, bool(getattr(fresh.config, "tie_word_embeddings", False)))
        digest = ContentDigest()
        for name, tensor in ledger.record(self._stream(folder, digest)):
            del name, tensor
        ledger.check(_held(model, self._dtype), checkpoint=checkpoint)
        vocab = int(model.get_output_embeddings().weight.shape[0])  # type: ignore[operator]
        return Loaded(digest.hexdigest(), vocab, time.perf_counter() - start)

    @torch.inference_mode()
    def score(self, queries: Sequence[Query], sink: Sink) -> None:
        assert self._model is not None, "load comes before score"
        for batch in batches(
            queries, self._settings.max_batch_tokens, self._settings.max_sequences
        ):
            sequences = list(dict.fromkeys((queries[i].ids) for i in batch))
            place = {ids: row for row, ids in enumerate(sequences)}
            width = max(map(len, sequences))
            ids = torch.zeros((len(sequences), width), dtype=torch.long)
            mask = torch.zeros_like(ids)
            for row, sequence in enumerate(sequences):
                ids[row, : len(sequence)] = torch.tensor(sequence)
                mask[row, : len(sequence)] = 1
            self._head.select(
                rows=torch.tensor([place[queries[i].ids] for i in batch]),
                positions=torch.tensor([queries[i].position for i in batch]),
            )
            output = self._model(
                input_ids=ids.to(self._device),
                attention_mask=mask.to(self._device),
                use_cache=False,
            )
            sink(batch, output.logits.float())

    def describe(self) -> dict[str, Json]:
        return {
            "engine": "transformers",
            "engine_version": transformers.__version__,
            "torch_version": torch.__version__,
            "device": str(self._device),
            "compute_dtype": self._settings.compute_dtype,
            "head_dtype": "float32",
        }

    def close(self) -> None:
        self._model = None

    def _read(self, folder: Path, checkpoint: str) -> transformers.PreTrainedModel:
        try:
            model: transformers.PreTrainedModel = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=self._dtype,
                use_safetensors=not self._settings.legacy_weights,
                trust_remote_code=self._settings.trust_remote_code,
            )
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise WeightsError(f"{checkpoint}: {folder} cannot be loaded: {error}") from error
        return model

    def _stream(self, folder: Path, digest: ContentDigest) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in stream_weights(folder, legacy_weights=self._settings.legacy_weights):
            digest.update(name, tensor)
            yield name, tensor


class _SelectingHead:
    """Makes a model's own forward apply its output head, in float32, to chosen positions only.

    The head's input is replaced by the chosen rows, so what the model does to its logits afterwards
    (scaling, soft caps) still happens.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._head = model.get_output_embeddings()  # type: ignore[operator]
        self._rows = self._positions = torch.empty(0, dtype=torch.long)
        self._head.forward = self._forward

    def select(self, *, rows: torch.Tensor, positions: torch.Tensor) -> None:
        self._rows, self._positions = rows, positions

    def _forward(self, hidden: torch.Tensor) -> torch.Tensor:
        chosen = hidden[self._rows, self._positions].float()
        bias = self._head.bias
        return torch.nn.functional.linear(
            chosen, self._head.weight.float(), None if bias is None else bias.float()
        )


def batches(queries: Sequence[Query], max_tokens: int, max_sequences: int) -> Iterator[list[int]]:
    """Indices of `queries`, length-sorted, cut so that no padded batch exceeds the budget.

    Queries of one sequence stay together, so that it is run once.
    """
    order = sorted(range(len(queries)), key=lambda i: (len(queries[i].ids), queries[i].ids))
    batch: list[int] = []
    sequences: set[tuple[int, ...]] = set()
    for i in order:
        ids = queries[i].ids
        grown = len(sequences | {ids})
        if batch and (grown * len(ids) > max_tokens or grown > max_sequences):
            yield batch
            batch, sequences = [], set()
        batch.append(i)
        sequences.add(ids)
    if batch:
        yield batch


@torch.no_grad()
def _copy_weights(source: torch.nn.Module, target: torch.nn.Module, checkpoint: str) -> None:
    """Swap in place: the device holds one model however many checkpoints there are."""
    new, old = dict(source.named_parameters()), dict(target.named_parameters())
    if {n: p.shape for n, p in new.items()} != {n: p.shape for n, p in old.items()}:
        odd = sorted(set(new) ^ set(old)) or [n for n in new if new[n].shape != old[n].shape]
        raise WeightsError(
            f"{checkpoint}: its parameters differ from the suite's first checkpoint "
            f"({odd[0]}{', …' if len(odd) > 1 else ''}); a suite has one architecture and size"
        )
    for name, parameter in old.items():
        parameter.copy_(new[name])
    for name, buffer in target.named_buffers():
        buffer.copy_(source.get_buffer(name))


def _held(model: torch.nn.Module, dtype: torch.dtype) -> Fingerprint:
    """Fingerprint of every parameter, counted under each of its names."""
    total = (0, 0)
    for _, parameter in model.named_parameters(remove_duplicate=False):
        total = add(total, fingerprint(parameter.to(dtype)))
    return total

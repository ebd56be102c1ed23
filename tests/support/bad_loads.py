"""Ways in which an engine may load weights wrongly, injected into one engine after another.

For a process of its own where the engine is vLLM.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from safetensors.torch import load_file

from logitbank.engine.backends.choose import open_backend
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.weights.masked import MASKED_FAMILIES, masked_weights
from logitbank.engine.workers.reference_check import Reference, compare
from logitbank.errors import ReferenceCheckError, WeightsError
from logitbank.store.format.schema import Query
from tests.support.checkpoints import VOCAB, Architecture

Tensors = Mapping[str, torch.Tensor]
Placed = Mapping[str, torch.Tensor | None]
"""Tensors as they arrive in the engine, by name; None for one that does not arrive."""
InFile = Callable[[Tensors, Tensors], Placed]
"""From the tensors of a checkpoint and of the one before."""
InModel = Callable[[Any], Callable[[], object]]
"""A change of the model after its weights are there; returns how to undo it."""


class Asked(NamedTuple):
    """What engines are asked, and what plain transformers answers for the second checkpoint."""

    queries: list[Query]
    references: list[tuple[np.ndarray, float]]


class Names(NamedTuple):
    """Names of tensors in the files of an architecture."""

    layer: str
    """Beginning of those of a layer."""
    last: tuple[str, ...]
    """Beginnings of all that follows the first layer."""
    embedding: str
    head: str
    norm: str
    """The last one."""
    norms: tuple[str, str]
    """Those of a layer."""
    square: str
    """A square matrix of a layer, which has a bias."""


NAMES: dict[Architecture, Names] = {
    "gpt_neox": Names(
        "gpt_neox.layers.{}.",
        ("gpt_neox.layers.1.", "gpt_neox.final_layer_norm.", "embed_out."),
        "gpt_neox.embed_in.weight",
        "embed_out.weight",
        "gpt_neox.final_layer_norm",
        ("input_layernorm", "post_attention_layernorm"),
        "attention.dense",
    ),
    "bert_pretraining": Names(
        "bert.encoder.layer.{}.",
        ("bert.encoder.layer.1.", "cls."),
        "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.weight",
        "cls.predictions.transform.LayerNorm",
        ("attention.output.LayerNorm", "output.LayerNorm"),
        "attention.output.dense",
    ),
}


def changed(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> InFile:
    return lambda own, _: {name: change(own[name])}


def of_before(*beginnings: str) -> InFile:
    """Tensors of the checkpoint before, as if they had been in the file."""
    return lambda _, before: {n: t for n, t in before.items() if n.startswith(beginnings)}


def absent(*beginnings: str) -> InFile:
    """Tensors that do not arrive, so that the engine keeps what it had."""
    return lambda own, _: dict.fromkeys(n for n in own if n.startswith(beginnings))


def exchanged(first: str, second: str) -> InFile:
    """Tensors whose names begin with `first`, in place of those with `second`, and vice versa."""

    def place(own: Tensors, _: Tensors) -> Placed:
        pairs = {n: second + n.removeprefix(first) for n in own if n.startswith(first)}
        return {n: own[m] for pair in pairs.items() for n, m in (pair, pair[::-1])}

    return place


def repeated(first: str, second: str) -> InFile:
    """Tensors whose names begin with `first`, in place of those with `second`, too."""
    return lambda own, before: {
        n: t for n, t in exchanged(first, second)(own, before).items() if n.startswith(second)
    }


def rotary_base(model: Any) -> Callable[[], object]:
    (frequencies,) = (
        b for name, b in model.named_buffers() if name.endswith("rotary_emb.inv_freq")
    )
    frequencies.mul_(0.5)
    return lambda: frequencies.mul_(2)


def in_file(architecture: Architecture) -> dict[str, InFile]:
    names = NAMES[architecture]
    first, second = (names.layer.format(number) for number in (0, 1))
    square, bias = (f"{second}{names.square}.{kind}" for kind in ("weight", "bias"))
    return {
        "the checkpoint before": absent(""),
        "the file before": of_before(""),
        "the last shard skipped": absent(*names.last),
        "the last shard before": of_before(*names.last),
        "the embedding before": of_before(names.embedding),
        "the norm of another checkpoint": of_before(f"{names.norm}.weight"),
        "one bias of another checkpoint": of_before(bias),
        "one bias that does not arrive": absent(bias),
        "head tied to the embedding": lambda own, _: {names.head: own[names.embedding]},
        "two layers exchanged": exchanged(first, second),
        "a layer loaded twice": repeated(first, second),
        "both norms of a layer exchanged": exchanged(*(first + norm for norm in names.norms)),
        "weight and bias of a norm exchanged": exchanged(
            f"{names.norm}.weight", f"{names.norm}.bias"
        ),
        "a matrix transposed": changed(square, lambda w: w.T),
        "tokens shifted by one": changed(names.embedding, lambda w: w.roll(1, 0)),
        "outputs shifted by one": changed(names.head, lambda w: w.roll(1, 0)),
        "a missing bias": changed(bias, torch.zeros_like),
        "a norm that is not loaded": changed(f"{names.norm}.weight", torch.ones_like),
        "a matrix that is not loaded": changed(square, torch.zeros_like),
        "float16 overflow": changed(square, lambda w: (w * 1e6).half().float()),
        "rounded to bfloat16": changed(names.head, lambda w: w.bfloat16().float()),
        "a scale applied twice": changed(square, lambda w: w * 2),
        **_of_attention(architecture, first),
    }


def _of_attention(architecture: Architecture, layer: str) -> dict[str, InFile]:
    """Two heads, of 32 rows of queries, of keys and of values each."""
    if architecture == "gpt_neox":  # in one matrix
        qkv = f"{layer}attention.query_key_value.weight"
        return {
            "queries, keys and values in another order": changed(
                qkv, lambda w: w.view(2, 3, 32, 64)[:, [1, 0, 2]].reshape(w.shape)
            ),
            "attention heads in another order": changed(
                qkv, lambda w: w.view(2, -1, 64).flip(0).reshape(w.shape)
            ),
            "heads not interleaved": changed(
                qkv, lambda w: w.view(2, 3, 32, 64).transpose(0, 1).reshape(w.shape)
            ),
        }
    queries, keys, values = (f"{layer}attention.self.{n}." for n in ("query", "key", "value"))
    return {
        "queries and keys exchanged": exchanged(queries, keys),
        "keys and values exchanged": exchanged(keys, values),
        "attention heads in another order": changed(
            f"{queries}weight", lambda w: w.view(2, -1, 64).flip(0).reshape(w.shape)
        ),
        "positions shifted by one": changed(
            "bert.embeddings.position_embeddings.weight", lambda w: w.roll(1, 0)
        ),
        "both segments exchanged": changed(
            "bert.embeddings.token_type_embeddings.weight", lambda w: w.flip(0)
        ),
    }


def attention_scale(model: Any) -> Callable[[], object]:
    """Attention of vLLM with queries that are divided twice."""
    layers = [m.impl for m in model.modules() if hasattr(getattr(m, "impl", None), "scale")]
    assert layers
    scales = [layer.scale for layer in layers]

    def put(factor: float) -> None:
        for layer, scale in zip(layers, scales, strict=True):
            layer.scale = scale * factor

    put(0.2)
    return partial(put, 1)


def scored(backend: Any, queries: Sequence[Query]) -> np.ndarray:
    """Logits (queries, outputs)."""
    rows = np.full((len(queries), VOCAB), np.nan, np.float32)

    def take(indices: Sequence[int], logits: torch.Tensor, *_: object) -> None:
        rows[list(indices)] = logits.numpy()

    backend.score(queries, take)
    return rows


def refusal(backend: Any, folder: Path, checkpoint: str, asked: Asked) -> str:
    """The message about a checkpoint that is loaded and checked; "" if it is not refused."""
    try:
        backend.load(folder, checkpoint=checkpoint)
        rows = scored(backend, asked.queries)
        for logits, row in zip(asked.references, rows, strict=True):
            compare(Reference(*logits), row, dtype="float32", checkpoint=checkpoint)
    except (WeightsError, ReferenceCheckError) as error:
        return str(error)
    return ""


class Engine:
    """An engine with two checkpoints of one architecture, whose loads can be made bad."""

    def __init__(
        self, settings: EngineSettings, architecture: Architecture, folders: Sequence[Path]
    ) -> None:
        self.backend: Any = open_backend(folders[0], settings)
        self._folders, self._architecture = folders, architecture
        self._before: Tensors
        self._own: Tensors
        self._before, self._own = (load_file(each / "model.safetensors") for each in folders)

    def refusal(self, bad: AbstractContextManager[object], asked: Asked) -> str:
        """The message about the second checkpoint, which is loaded after the first one."""
        self.backend.load(self._folders[0], checkpoint="toy step 0")
        scored(self.backend, asked.queries)  # for a prefix cache
        with bad:
            return refusal(self.backend, self._folders[1], "toy step 1", asked)

    def bad_loads(self) -> Mapping[str, AbstractContextManager[object]]:
        """Each way in which this engine can load the second checkpoint wrongly."""
        found: dict[str, AbstractContextManager[object]]
        found = {name: self.placed(f) for name, f in in_file(self._architecture).items()}
        if self._architecture == "gpt_neox":
            found["another base of rotary positions"] = self.changed(rotary_base)
        return found

    @contextmanager
    def placed(self, place: InFile) -> Iterator[None]:
        """Other tensors are in the engine than in the file."""
        raise NotImplementedError

    @contextmanager
    def changed(self, change: InModel) -> Iterator[None]:
        """The model is changed after its weights are there."""
        raise NotImplementedError


class Transformers(Engine):
    @contextmanager
    def placed(self, place: InFile) -> Iterator[None]:
        def put(model: Any) -> Callable[[], object]:
            parameters = dict(model.named_parameters(remove_duplicate=False))
            for name, tensor in place(self._own, self._before).items():
                parameter = parameters.get(name.replace("embed_out", "lm_head"))
                if parameter is not None:  # as those of BERT's pooler, which is not used
                    parameter.copy_(self._before[name] if tensor is None else tensor)
            return lambda: None

        with self.changed(put):
            yield

    @contextmanager
    def changed(self, change: InModel) -> Iterator[None]:
        backend, undo = self.backend, ExitStack()

        def then_changed(load: Callable[..., object], *arguments: object) -> object:
            if account := load(*arguments):
                with torch.no_grad():
                    undo.callback(change(backend._model))
            return account

        with undo, patch.multiple(
            backend,
            _replace=partial(then_changed, backend._replace),
            _read=partial(then_changed, backend._read),
        ):  # fmt: skip
            yield


class Vllm(Engine):
    def bad_loads(self) -> Mapping[str, AbstractContextManager[object]]:
        found = {**super().bad_loads(), "queries divided twice": self.changed(attention_scale)}
        if self._architecture == "gpt_neox":  # masked models have no prefixes
            llm = self.backend._llm
            found["prefixes of the checkpoint before"] = patch.object(
                llm, "reset_prefix_cache", return_value=True
            )
        if any(p.numel() == 0 for p in self._model.parameters()):
            found["packed copies of the checkpoint before"] = self._packed_before()
        return found

    @property
    def _model(self) -> Any:
        return self.backend._llm.apply_model(lambda model: model)[0]

    @contextmanager
    def placed(self, place: InFile) -> Iterator[None]:
        honest = self.backend._recorded
        by_name = place(self._own, self._before)
        missing = self._named({n: self._own[n] for n, t in by_name.items() if t is None})
        others = self._named({n: t for n, t in by_name.items() if t is not None})

        def recorded(weights: Any) -> Any:
            ledger, given = honest(weights)
            return ledger, ((n, others.get(n, t)) for n, t in given if n not in missing)

        with patch.object(self.backend, "_recorded", recorded):
            yield

    def _named(self, tensors: Tensors) -> Tensors:
        """By the names that vLLM gets."""
        if self._architecture == "gpt_neox":
            return tensors
        return dict(masked_weights(tensors.items(), MASKED_FAMILIES["bert"], tied=False))

    @contextmanager
    def changed(self, change: InModel) -> Iterator[None]:
        llm, undo = self.backend._llm, ExitStack()
        honest = llm.collective_rpc

        def then_changed(*arguments: Any, **named: Any) -> object:
            done = honest(*arguments, **named)
            with torch.no_grad():
                undo.callback(change(self._model))
            return done

        with undo, patch.object(llm, "collective_rpc", then_changed):
            yield

    @contextmanager
    def _packed_before(self) -> Iterator[None]:
        """The proof is before the repacking, so only logits show this."""
        before = {m: m.cpu_linear for m in self._model.modules() if hasattr(m, "cpu_linear")}

        def put(_: Any) -> Callable[[], object]:
            for module, packed in before.items():
                module.cpu_linear = packed
            return lambda: None

        with self.changed(put):
            yield


def refusals(
    settings: EngineSettings, architecture: Architecture, folders: Sequence[Path], asked: Asked
) -> dict[str, str]:
    """The message about each bad load; and about a sound one before and after all of them."""
    kind = Vllm if settings.engine == "vllm" else Transformers
    engine = kind(settings, architecture, folders)
    found = {"sound": engine.refusal(nullcontext(), asked)}
    found |= {name: engine.refusal(bad, asked) for name, bad in engine.bad_loads().items()}
    return found | {"sound again": engine.refusal(nullcontext(), asked)}


def sound_refusals(
    settings: EngineSettings, folders: Sequence[Path], asked: Sequence[Asked]
) -> list[str]:
    """The message about each of many sound loads by one engine; "" if it is not refused."""
    backend = open_backend(folders[0], settings)
    pairs = zip(folders, asked, strict=True)
    return [refusal(backend, folder, folder.name, each) for folder, each in pairs]

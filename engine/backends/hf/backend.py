"""The transformers engine: any architecture, any device; length-sorted batches under a budget."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
import transformers

from logitbank.engine.backends.heads import Layer, proved_heads, trial_queries
from logitbank.engine.backends.hf.batches import plan_batches
from logitbank.engine.backends.hf.forward import Forward, a_language
from logitbank.engine.backends.hf.model import operations, read_model
from logitbank.engine.backends.hf.packed import (
    depends_on_length,
    difference,
    last_bits_changed,
    refusal,
    trial,
)
from logitbank.engine.backends.hf.packs import CPU_POSITIONS, POSITIONS
from logitbank.engine.backends.hf.state import ModelState
from logitbank.engine.backends.hf.swap import INSTEAD, Account, copy_weights
from logitbank.engine.backends.matmul import use_fast_matmul
from logitbank.engine.backends.out_of_memory import is_out_of_memory
from logitbank.engine.backends.precision import body_dtype
from logitbank.engine.backends.protocol import EngineSettings, Loaded, Sink, Tokens
from logitbank.engine.backends.torch_precision import multiply_on, products_provenance
from logitbank.engine.weights.config_identity import check_same_model, config_fields
from logitbank.engine.weights.proof import Fingerprint
from logitbank.errors import EngineError, WeightsError
from logitbank.store.format.heads import OutputHead
from logitbank.store.format.schema import Head, Json, Query

ALONE = "one sequence at a time"
"""Provenance of deterministic runs."""


class TransformersBackend:
    """Plain transformers with one architecture resident on the device."""

    def __init__(self, folder: Path, settings: EngineSettings) -> None:
        self._settings = settings
        self._dtype: torch.dtype = getattr(torch, body_dtype(settings.compute_dtype))
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        multiply_on(self._device, settings.compute_dtype)
        self._model: transformers.PreTrainedModel | None = None
        self._forward: Forward | None = None
        self._packed = CPU_POSITIONS if self._device.type == "cpu" else sys.maxsize
        self._not_packed: str | None = None
        self._resident: Account | None = None
        self._state: ModelState | None = None
        """What every pass finds; None while passes are observed."""
        self._is_rewritten = False
        """Whether the first pass of a model writes into its weights, so that none is swapped."""
        self._config = config_fields(folder)
        self._max_tokens = settings.max_batch_tokens
        self._max_sequences = 1 if settings.deterministic else settings.max_sequences
        if settings.deterministic:
            torch.use_deterministic_algorithms(True)

    def load(self, folder: Path, *, checkpoint: str, digests: Mapping[str, str] = {}) -> Loaded:
        start = time.perf_counter()
        check_same_model(self._config, config_fields(folder), checkpoint=checkpoint)
        if self._is_rewritten:
            self._model = self._forward = self._state = self._resident = None
        try:
            account = self._replace(folder, digests) or self._read(folder, digests)
        except WeightsError as error:
            raise WeightsError(f"{checkpoint}: {error}") from error
        model, forward, settings = self._model, self._forward, self._settings
        assert model is not None
        assert forward is not None
        account.check(model, checkpoint)
        if self._state is None:
            self._state = self._observe(model)
        self._state.settle()
        if settings.task == "causal":
            self._resident = account
        note = self._choose_packing(model)
        heads = self._output_heads(model) if settings.hidden else {}
        digest, made = account.digest.hexdigest(), account.describe()
        return Loaded(
            *(digest, forward.head.outputs, time.perf_counter() - start, note, made, heads),
            account.digest.matrices(),
        )

    def _replace(self, folder: Path, digests: Mapping[str, str]) -> Account | None:
        """Replace the weights tensor by tensor; None if the model has to be read as a whole."""
        resident, self._resident = self._resident, None  # until the new weights are proved
        if resident is None or self._model is None:
            return None
        return resident.replaced(folder, self._model, digests)

    def _read(self, folder: Path, digests: Mapping[str, str]) -> Account:
        """Read a whole model; it starts the engine or replaces the model in memory."""
        read = read_model(folder, self._settings, self._dtype)
        if self._model is None:
            self._model = read.model.to(self._device).eval()
            use_fast_matmul(self._model)
            self._forward = Forward(
                self._model, self._settings, device=self._device, dtype=self._dtype
            )
        else:
            copy_weights(read.model, self._model)
        return Account.from_folder(folder, read, self._settings, digests)

    @torch.inference_mode()
    def _observe(self, model: transformers.PreTrainedModel) -> ModelState:
        """The state that every pass of a new model has to find.

        It is that of the model as it was read. If the first pass writes into the weights, as
        RWKV's does, it is the state after that pass, and each checkpoint is read as a new model.

        Raises
        ------
        EngineError
            Passes write into the weights again and again.
        """
        length = self._settings.max_length
        longest = Query((1,) * length, length - 1, language=a_language(model))
        queries = [*self._trial(model), longest]
        state = ModelState(model)
        marks = self._marks(state)
        logits = self._all_logits(queries, packed=0)
        if not state.is_written and self._marks(state) == marks:
            state.restore()
            return state
        self._is_rewritten, state = True, ModelState(model)
        marks = self._marks(state)
        again = self._all_logits(queries, packed=0)
        if (
            state.is_written
            or self._marks(state) != marks
            or not torch.allclose(logits, again, 1e-4, 1e-4, equal_nan=True)
        ):
            raise self._writes_weights()
        state.restore()
        return state

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        """Let the model have other hooks meanwhile."""
        state, self._state = self._state, None
        try:
            yield
        finally:
            self._state = state
            if state is not None:
                state.restore()

    def _marks(self, state: ModelState) -> list[Fingerprint]:
        """Fingerprints of a model's tensors, if its code may write them in uncounted ways."""
        return state.marks() if self._settings.trust_remote_code else []

    def _writes_weights(self) -> EngineError:
        return EngineError(
            f"{type(self._model).__name__} writes into its own weights as it runs, so its logits"
            f" depend on the prompts before; {INSTEAD}"
        )

    @torch.inference_mode()
    def score(self, queries: Sequence[Query], sink: Sink) -> Tokens:
        run = self._run_all(queries, sink, packed=self._packed if self._not_packed == "" else 0)
        tokens = sum(len(query.ids) for query in queries)
        return Tokens(tokens, tokens - run)

    def _run_all(self, queries: Sequence[Query], sink: Sink, *, packed: int) -> int:
        """Number of tokens that were run."""
        assert self._forward is not None, "load comes before score"
        assert self._model is not None
        causal = self._settings.task == "causal"
        if causal and not packed and depends_on_length(self._model.config):
            queries = [replace(query, ids=query.ids[: query.position + 1]) for query in queries]
        run = 0
        for batch in plan_batches(queries, self._max_tokens, self._max_sequences, packed=packed):
            try:
                logits, hidden = self._forward(batch, queries[batch.queries[0]].head)
            finally:
                if self._state is not None:
                    self._state.restore()
            if self._state is not None and self._state.is_written:
                raise self._writes_weights()
            sink(batch.queries, logits.float(), hidden if self._settings.hidden else None)
            run += batch.tokens
        return run

    def _choose_packing(self, model: transformers.PreTrainedModel) -> str:
        """Decide whether this checkpoint's contexts are packed; a note if that changes."""
        settings = self._settings
        if settings.task == "masked" or settings.deterministic or settings.max_length == 1:
            return ""
        before = self._not_packed
        self._not_packed = reason = self._why_not_packed(model)
        refused = f"contexts are run one by one, as packing them is refused: {reason}"
        return "" if reason in ("", before) else refused

    @torch.inference_mode()
    def _why_not_packed(self, model: transformers.PreTrainedModel) -> str:
        """Try packing with this checkpoint's weights: why not, or "" if it works."""
        if reason := refusal(model, self._settings.max_length):
            return reason
        compared, between = trial(
            self._vocab(model), self._settings.max_length, most=self._max_tokens
        )
        try:
            alone = self._all_logits(compared, packed=0)
            with self._unwatched(), last_bits_changed(model, self._dtype):
                moved = self._all_logits(compared, packed=0)
            packed = self._all_logits(compared + between, packed=self._packed)[: len(compared)]
        except Exception as error:  # the code of an architecture may raise anything
            if is_out_of_memory(error):
                raise
            return f"{type(error).__name__} with a mask of ancestors: {error}".splitlines()[0]
        return difference(packed, alone, moved, self._dtype)

    def _all_logits(self, queries: Sequence[Query], *, packed: int) -> torch.Tensor:
        assert self._forward is not None
        rows = torch.empty(len(queries), self._forward.head.outputs)

        def take(indices: Sequence[int], logits: torch.Tensor, *_: object) -> None:
            rows[list(indices)] = logits.cpu()

        self._run_all(queries, take, packed=packed)
        return rows

    def _output_heads(self, model: transformers.PreTrainedModel) -> dict[Head, OutputHead]:
        assert self._forward is not None
        named = {
            kind: Layer(head.layer.weight, head.layer.bias)
            for kind, head in self._forward.heads.items()
            if head.layer is not None
        }
        return proved_heads(named, operations(model.config), self.score, self._trial(model))

    def _vocab(self, model: transformers.PreTrainedModel) -> int:
        """Number of tokens with both an embedding and an output."""
        assert self._forward is not None
        size: int = model.config.get_text_config().vocab_size
        return min(self._forward.head.outputs, size)

    def _trial(self, model: transformers.PreTrainedModel) -> list[Query]:
        return trial_queries(self._vocab(model), self._settings.max_length, a_language(model))

    def describe(self) -> dict[str, Json]:
        return {
            "engine": "transformers",
            "engine_version": transformers.__version__,
            "torch_version": torch.__version__,
            "device": str(self._device),
            "compute_dtype": self._settings.compute_dtype,
            "head_dtype": "float32",
            **products_provenance(self._device),
            "max_batch_tokens": self._max_tokens,
            "max_sequences": self._max_sequences,
            **({"deterministic": ALONE} if self._settings.deterministic else {}),
            **({} if self._not_packed is None else {"packed": self._not_packed or POSITIONS}),
        }

    def close(self) -> None:
        self._model = self._forward = self._state = None

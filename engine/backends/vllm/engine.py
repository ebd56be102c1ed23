"""The vLLM engine: one load per architecture, weights swapped in place, logits tapped inside.

Must be imported only in a process of its own: vLLM's transformers backend, which runs GPT-NeoX,
patches transformers where it is loaded.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Before vLLM is imported: the engine runs in this process, and nothing is sent anywhere.
os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_PLUGINS": "",
    # A prompt as long as the model takes leaves no room for the token that vLLM insists on
    # generating; that token is never run, and longer prompts are refused when planning.
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # It would compile kernels for a sampler that nobody uses, and download them first.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    # vLLM numbers what one process asks of it; a random name for each request took 6 µs of a row.
    "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION": "1",
}

import torch
import vllm
from vllm import LLM, SamplingParams
from vllm.engine.arg_utils import EngineArgs

from logitbank.engine.backends.heads import Layer, StreamedHead, proved_heads, trial_queries
from logitbank.engine.backends.precision import body_dtype
from logitbank.engine.backends.protocol import EngineName, EngineSettings, Loaded, Sink, Tokens
from logitbank.engine.backends.torch_precision import multiply_on, products_provenance
from logitbank.engine.backends.vllm.granted import granted_memory
from logitbank.engine.backends.vllm.groups import one_thread_for_groups
from logitbank.engine.backends.vllm.held import Held
from logitbank.engine.backends.vllm.multiplied import heads_in_float32, watch_head
from logitbank.engine.backends.vllm.plugins import refuse_other_processors
from logitbank.engine.backends.vllm.tap import ROW, BatchTap, SlotTap, set_sink
from logitbank.engine.plan.parallel import own_threads
from logitbank.engine.weights.config_identity import check_same_model, config_fields
from logitbank.engine.weights.digests import ContentDigest
from logitbank.engine.weights.heads import is_head
from logitbank.engine.weights.proof import Ledger
from logitbank.engine.weights.weights import stream_weights
from logitbank.errors import EngineError, LogitbankError, WeightsError
from logitbank.store.format.heads import Operation, OutputHead
from logitbank.store.format.schema import Head, Json, Query

Weights = Iterator[tuple[str, torch.Tensor]]
_SWAP_THREADS = 4
"""Of a machine with a GPU: eight engines on it do not take all cores together."""


class VllmEngine(ABC):
    """vLLM with one architecture loaded: swaps and proof, the same for every kind of model."""

    name: EngineName = "vllm"

    def __init__(self, settings: EngineSettings, arguments: dict[str, Any]) -> None:
        self._settings, self._config = settings, config_fields(Path(arguments["model"]))
        if settings.deterministic:
            _require_invariance()
        self._device = device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        multiply_on(device, settings.compute_dtype)
        memory_of_gpu = granted_memory(Path(arguments["model"]), settings)
        with one_thread_for_groups(), memory_of_gpu as memory:
            self._llm = LLM(**arguments, **memory)
        multiply_on(device, settings.compute_dtype)  # vLLM sets its own
        self._llm.apply_model(heads_in_float32)
        self._model_config = self._llm.llm_engine.vllm_config.model_config
        self._held = Held(self._model_config.dtype)
        if device.type == "cpu":
            self._llm.apply_model(self._held.watch_packing)
        self._has_head = self._llm.apply_model(_has_head)[0]
        self._after: tuple[Operation, ...] | None = ()
        if settings.hidden and settings.task == "causal":
            self._after = self._llm.apply_model(watch_head)[0]

    def load(self, folder: Path, *, checkpoint: str) -> Loaded:
        start = time.perf_counter()
        digest = ContentDigest()
        self._held.forget()
        if self._device.type == "cuda":  # vLLM may leave one; tensors are laid out for their copies
            torch.set_num_threads(min(_SWAP_THREADS, own_threads()))
        check_same_model(self._config, config_fields(folder), checkpoint=checkpoint)
        ledger, recorded = self._recorded(digest.watch(stream_weights(folder)))
        streamed = StreamedHead()
        if self._settings.hidden:
            recorded = streamed.watch(recorded)
        try:
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": recorded})
        except LogitbankError:
            raise
        except (ValueError, KeyError, RuntimeError, AssertionError) as error:
            raise WeightsError(
                f"{checkpoint}: the weights in {folder} do not fit the engine's architecture "
                f"({error}); are all checkpoints of the suite of one architecture and size?"
            ) from error
        if not self._llm.reset_prefix_cache():
            raise EngineError(
                f"{checkpoint}: vLLM's prefix cache could not be reset after the swap"
            )
        held = self._llm.apply_model(self._held.fingerprint)[0]
        ledger.check(held, checkpoint=checkpoint, instead="try --engine transformers")
        vocab = int(self._model_config.get_vocab_size())
        heads: dict[Head, OutputHead] = {}
        if self._settings.hidden and self._after is not None:
            queries = trial_queries(vocab, self._settings.max_length)
            heads = proved_heads(self._layers(streamed), [self._after], self.score, queries)
        seconds = time.perf_counter() - start
        return Loaded(digest.hexdigest(), vocab, seconds, heads=heads)

    @abstractmethod
    def score(self, queries: Sequence[Query], sink: Sink) -> Tokens: ...

    def _layers(self, streamed: StreamedHead) -> dict[Head, Layer]:
        """The heads that the settings ask for, as they were swapped in.

        Of the stream: the CPU build repacks the parameter, and cannot be asked for it.
        """
        layer = streamed.layer(int(self._model_config.get_vocab_size()))
        return {} if layer is None else {"next_token": layer}

    @property
    def _tied(self) -> bool:
        return bool(getattr(self._model_config.hf_text_config, "tie_word_embeddings", False))

    def _recorded(self, weights: Weights) -> tuple[Ledger, Weights]:
        """What goes into the engine, and the account of it."""
        # A class that multiplies by the embedding itself, such as Gemma 2's, refuses a head.
        tied = self._tied and self._has_head
        ledger = Ledger(self._model_config.dtype, tied, self._device)
        return ledger, ledger.record(weights)

    def describe(self) -> dict[str, Json]:
        device = self._llm.llm_engine.vllm_config.device_config.device_type
        return {
            "engine": "vllm",
            "engine_version": vllm.__version__,
            "torch_version": torch.__version__,
            "device": device,
            "compute_dtype": self._settings.compute_dtype,
            "head_dtype": "float32",
            **products_provenance(torch.device(device)),
            "max_batch_tokens": self._settings.max_batch_tokens,
            "max_sequences": self._settings.max_sequences,
            **(
                {"deterministic": "batch-invariant kernels"} if self._settings.deterministic else {}
            ),
        }

    def close(self) -> None:
        self._llm.llm_engine.engine_core.shutdown()


def _has_head(model: torch.nn.Module) -> bool:
    """Whether the model names an output head, be it the embedding under a second name."""
    return any(is_head(name) for name, _ in model.named_parameters(remove_duplicate=False))


def _require_invariance() -> None:
    """Refuse to begin without kernels of which vLLM says that they are batch-invariant.

    No error of ours: it is the same for all checkpoints, and two such end a run.
    """
    known = "VLLM_BATCH_INVARIANT" in vllm.envs.environment_variables
    capable = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    if not (known and capable):
        raise RuntimeError(
            f"vLLM {vllm.__version__} has no batch-invariant kernels for this device; run"
            " --deterministic with --engine transformers, which takes one sequence at a time"
        )


class VllmBackend(VllmEngine):
    """Causal models: the next token's logits after each context, tapped where vLLM samples."""

    def __init__(self, folder: Path, settings: EngineSettings) -> None:
        refuse_other_processors()
        arguments = _arguments(folder, settings)
        config = EngineArgs(**arguments).create_engine_config()
        self._slots = bool(config.use_v2_model_runner)
        tap = SlotTap if self._slots else BatchTap
        super().__init__(settings, arguments | {"logits_processors": [tap]})

    def score(self, queries: Sequence[Query], sink: Sink) -> Tokens:
        contexts = [query.ids[: query.position + 1] for query in queries]
        prompts = [{"prompt_token_ids": list(ids)} for ids in contexts]
        params = [
            SamplingParams(
                max_tokens=1, temperature=0, detokenize=False, skip_clone=True, extra_args={ROW: i}
            )
            for i in range(len(queries))
        ]
        set_sink(sink)
        try:
            outputs = self._llm.generate(prompts, params, use_tqdm=False)
        finally:
            set_sink(None)
        cached = sum(output.num_cached_tokens or 0 for output in outputs)
        tokens, run = (sum(map(len, each)) for each in ([q.ids for q in queries], contexts))
        return Tokens(tokens, tokens - run + cached)

    def describe(self) -> dict[str, Json]:
        return super().describe() | {
            "model_runner": "v2" if self._slots else "v1",
            "head_dtype": str(self._model_config.head_dtype).removeprefix("torch."),
            "block_size": block_size(self._settings),
        }


def common_arguments(folder: Path, settings: EngineSettings) -> dict[str, Any]:
    """Arguments of `vllm.LLM`. Dummy weights: every checkpoint, the first too, comes by a swap."""
    return {
        "model": str(folder),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "dtype": body_dtype(settings.compute_dtype),
        "enforce_eager": True,
        "kernel_config": {"enable_flashinfer_autotune": False},
        "trust_remote_code": settings.trust_remote_code,
        "disable_log_stats": True,
        "seed": 0,
    }


def _arguments(folder: Path, settings: EngineSettings) -> dict[str, Any]:
    arguments: dict[str, Any] = common_arguments(folder, settings) | {
        "hf_overrides": {"head_dtype": "float32"},
        "max_model_len": settings.max_length + 1,  # vLLM wants room for one generated token
        "max_num_seqs": settings.max_sequences,
    }
    return arguments | cache_arguments(settings)


def cache_arguments(settings: EngineSettings) -> dict[str, Any]:
    """Arguments of `vllm.LLM` with which sequences share the blocks that they begin with."""
    size = block_size(settings)
    return {
        "max_num_batched_tokens": max(settings.max_batch_tokens, size),
        "block_size": size,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
    }


def block_size(settings: EngineSettings) -> int:
    """Tokens in a block of the prefix cache."""
    return settings.block_size or (16 if torch.cuda.is_available() else 32)

"""The vLLM engine: one load per architecture, weights replaced in place, logits taken inside.

Its model is vLLM's own class with a pooler (`positions`). Only contexts that no other context
continues are run, each whole; the others are read on the way.

Import it only in a process of its own: vLLM's transformers backend, which runs GPT-NeoX, patches
transformers.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# Set before vLLM is imported: the engine runs in this process and sends no usage data.
os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_PLUGINS": "",
    # Planning refuses prompts that are longer than the model takes.
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # FlashInfer would download and compile kernels for an unused sampler.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    # Request numbers are unique within a process; a random name takes 6 µs a row.
    "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION": "1",
}

# Process groups of this one process listen on the loopback interface only.
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")

import torch
import vllm
from vllm import LLM, ModelRegistry
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.models.config import MODELS_CONFIG_MAP

from logitbank.engine.backends.contexts import leaf_contexts
from logitbank.engine.backends.heads import Layer, StreamedHead, proved_heads, trial_queries
from logitbank.engine.backends.out_of_memory import is_out_of_memory
from logitbank.engine.backends.precision import body_dtype
from logitbank.engine.backends.protocol import EngineSettings, Loaded, Sink, Tokens
from logitbank.engine.backends.torch_precision import multiply_on, products_provenance
from logitbank.engine.backends.vllm.head_inputs import HeadInputs, heads_in_float32
from logitbank.engine.backends.vllm.memory import (
    BLOCK,
    BLOCK_ON_A_GPU,
    cache_bytes,
    token_bytes,
)
from logitbank.engine.backends.vllm.positions import (
    TASK,
    PositionPooler,
    Request,
    class_with_pooler,
)
from logitbank.engine.backends.weight_bytes import weight_bytes
from logitbank.engine.weights.config import Attention
from logitbank.engine.weights.config_identity import check_same_model, config_fields
from logitbank.engine.weights.digests import ContentDigest
from logitbank.engine.weights.heads import is_head
from logitbank.engine.weights.proof import Fingerprint, Ledger, add, fingerprint
from logitbank.engine.weights.weights import stream_weights
from logitbank.errors import EngineError, LogitbankError, WeightsError
from logitbank.store.format.heads import Operation, OutputHead
from logitbank.store.format.schema import Head, Json, Query

Weights = Iterator[tuple[str, torch.Tensor]]
Arguments = dict[str, Any]
"""Arguments of `vllm.LLM`."""
_CLASS = "LogitbankPositions"
_UNUSED = 0.01
"""vLLM refuses to start if less than this part of a GPU is free, and does not use it otherwise,
because the bytes of its cache are given. Another worker may take memory meanwhile."""


class VllmBackend:
    """vLLM with one architecture loaded: any causal one that it generates with."""

    def __init__(self, folder: Path, settings: EngineSettings) -> None:
        self._settings, self._config = settings, config_fields(folder)
        if settings.deterministic:
            _require_invariance()
        self._device = device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        multiply_on(device, settings.compute_dtype)
        self._inputs = HeadInputs()
        arguments = self._prepare(folder, _arguments(folder, settings))
        config = EngineArgs(**arguments).create_model_config()
        self._llm = LLM(**arguments, **_memory_arguments(folder, settings, config))
        multiply_on(device, settings.compute_dtype)  # vLLM changed it
        self._llm.apply_model(heads_in_float32)
        self._model_config = self._llm.llm_engine.vllm_config.model_config
        self._loaded = LoadedWeights(self._model_config.dtype)
        if device.type == "cpu":
            self._llm.apply_model(self._loaded.watch_packing)
        self._has_head = self._llm.apply_model(_has_head)[0]
        self._pooler: PositionPooler = self._llm.apply_model(lambda model: model.pooler)[0]
        self._pooler.one_size = settings.deterministic
        self._postprocessing: tuple[Operation, ...] | None = ()
        if settings.hidden:
            self._postprocessing = self._watch_head()

    def _prepare(self, folder: Path, arguments: Arguments) -> Arguments:
        """Register the class of the model, and complete the arguments of `vllm.LLM` for it."""
        arguments = arguments | {"hf_overrides": {"head_dtype": "float32"}}
        config = EngineArgs(**arguments).create_model_config()
        known, architecture = ModelRegistry.resolve_model_cls(config.architectures, config)
        pooled = class_with_pooler(known, config.architectures, self._inputs)
        ModelRegistry.register_model(_CLASS, pooled)
        MODELS_CONFIG_MAP.pop(_CLASS, None)
        if architecture in MODELS_CONFIG_MAP:  # vLLM's settings for this class, such as its cache's
            MODELS_CONFIG_MAP[_CLASS] = MODELS_CONFIG_MAP[architecture]
        if not config.has_inner_state:  # of a recurrent model, which a prefix cache does not hold
            arguments |= _cache_arguments(self._settings)
        return arguments | {"hf_overrides": {"head_dtype": "float32", "architectures": [_CLASS]}}

    def _watch_head(self) -> tuple[Operation, ...] | None:
        """Operations on the head's logits, whose inputs are known from now on; None if unknown."""
        operations: tuple[Operation, ...] | None = self._llm.apply_model(self._inputs.watch)[0]
        return operations

    def load(self, folder: Path, *, checkpoint: str, digests: Mapping[str, str] = {}) -> Loaded:
        start = time.perf_counter()
        digest = ContentDigest(digests)
        self._loaded.forget()
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
            if is_out_of_memory(error):
                raise
            raise WeightsError(
                f"{checkpoint}: the weights in {folder} do not fit the engine's architecture "
                f"({error}); are all checkpoints of the suite of one architecture and size?"
            ) from error
        if not self._llm.reset_prefix_cache():
            raise EngineError(
                f"{checkpoint}: vLLM's prefix cache could not be reset after the swap"
            )
        loaded = self._llm.apply_model(self._loaded.fingerprint)[0]
        ledger.check(loaded, checkpoint=checkpoint, instead="try --engine transformers")
        vocab = int(self._model_config.get_vocab_size())
        heads: dict[Head, OutputHead] = {}
        if self._settings.hidden and self._postprocessing is not None:
            queries = trial_queries(vocab, self._settings.max_length)
            heads = proved_heads(
                self._layers(streamed), [self._postprocessing], self.score, queries
            )
        seconds = time.perf_counter() - start
        matrices = digest.matrices()
        return Loaded(digest.hexdigest(), vocab, seconds, heads=heads, matrices=matrices)

    def _layers(self, streamed: StreamedHead) -> dict[Head, Layer]:
        """The requested heads of the checkpoint that was just loaded.

        They come from the file's tensors, because the CPU build repacks its parameters.
        """
        layer = streamed.layer(int(self._model_config.get_vocab_size()))
        return {} if layer is None else {"next_token": layer}

    def score(self, queries: Sequence[Query], sink: Sink) -> Tokens:
        missing = set(range(len(queries)))

        def take(
            indices: Sequence[int],
            logits: torch.Tensor,
            hidden: torch.Tensor | None = None,
        ) -> None:
            missing.difference_update(indices)
            sink(indices, logits, hidden)

        requests = self._requests(queries)
        run = self._run(requests, queries, take)
        if missing:  # the prefix cache contains these positions from an earlier call, but no output
            left = [(r.ids, [i for i in r.rows if i in missing]) for r in requests]
            again = [Request(ids, rows) for ids, rows in left if rows]
            run += self._run(again, queries, take, cached=False)
        tokens = sum(len(query.ids) for query in queries)
        return Tokens(tokens, tokens - run)

    def _requests(self, queries: Sequence[Query]) -> list[Request]:
        """The sequences to run.

        They are in order, so that the prefix that each context shares with the one before is
        cached. A query belongs to the first context that it is a prefix of, so its position is only
        cached if an earlier call ran it.
        """
        return [Request(context, rows) for context, rows in leaf_contexts(queries)]

    def _run(
        self, requests: Sequence[Request], queries: Sequence[Query], sink: Sink, cached: bool = True
    ) -> int:
        """Number of tokens that were run; `cached` allows reading the prefix cache."""
        params = [request.params(queries, cached=cached) for request in requests]
        prompts = [{"prompt_token_ids": list(request.ids)} for request in requests]
        self._pooler.sink = sink
        try:
            outputs = self._llm.encode(prompts, params, pooling_task=TASK, use_tqdm=False)
        finally:
            self._pooler.sink = None
        return sum(
            len(request.ids) - output.num_cached_tokens
            for request, output in zip(requests, outputs, strict=True)
        )

    def _recorded(self, weights: Weights) -> tuple[Ledger, Weights]:
        """The ledger of a checkpoint, and its tensors for the engine."""
        # A class that multiplies by the embedding itself, such as Gemma 2's, accepts no head.
        ledger = Ledger(self._model_config.dtype, self._tied and self._has_head, self._device)
        return ledger, ledger.record(weights)

    @property
    def _tied(self) -> bool:
        return bool(getattr(self._model_config.hf_text_config, "tie_word_embeddings", False))

    def describe(self) -> dict[str, Json]:
        config = self._llm.llm_engine.vllm_config
        device, cache = config.device_config.device_type, config.cache_config
        batches = config.scheduler_config
        return {
            "engine": "vllm",
            "engine_version": vllm.__version__,
            "torch_version": torch.__version__,
            "device": device,
            "compute_dtype": self._settings.compute_dtype,
            "head_dtype": "float32",
            **products_provenance(torch.device(device)),
            "max_batch_tokens": batches.max_num_batched_tokens,
            "max_sequences": batches.max_num_seqs,
            **({"block_size": cache.block_size} if cache.enable_prefix_caching else {}),
            **(
                {"deterministic": "batch-invariant kernels"} if self._settings.deterministic else {}
            ),
        }

    def close(self) -> None:
        self._llm.llm_engine.engine_core.shutdown()


def _has_head(model: torch.nn.Module) -> bool:
    """Whether the model has an output head, possibly the embedding under a second name."""
    return any(is_head(name) for name, _ in model.named_parameters(remove_duplicate=False))


def _require_invariance() -> None:
    """Raise RuntimeError if vLLM has no batch-invariant kernels: all checkpoints would fail."""
    known = "VLLM_BATCH_INVARIANT" in vllm.envs.environment_variables
    capable = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    if not (known and capable):
        raise RuntimeError(
            f"vLLM {vllm.__version__} has no batch-invariant kernels for this device; run"
            " --deterministic with --engine transformers, which takes one sequence at a time"
        )


class LoadedWeights:
    """Fingerprint of the parameters in vLLM's model, also of those that its CPU build repacks."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._packed: dict[str, Fingerprint] = {}

    def forget(self) -> None:
        """Forget repacked parameters of the last checkpoint."""
        self._packed.clear()

    def watch_packing(self, model: torch.nn.Module) -> None:
        """Fingerprint parameters just before the CPU build repacks them.

        oneDNN's packed copy cannot be read back, and the parameter itself becomes empty.
        """
        for path, module in model.named_modules():
            method = getattr(module, "quant_method", None)
            process = getattr(method, "process_weights_after_loading", None)
            if process is None:
                continue

            def watched(
                layer: torch.nn.Module, *, _path: str = path, _process: Any = process
            ) -> None:
                before = {
                    name: fingerprint(parameter.to(self._dtype))
                    for name, parameter in layer.named_parameters(recurse=False)
                }
                _process(layer)
                for name, parameter in layer.named_parameters(recurse=False):
                    if name in before and parameter.numel() == 0:
                        self._packed[f"{_path}.{name}"] = before[name]

            method.process_weights_after_loading = watched  # type: ignore[union-attr]

    def fingerprint(self, model: torch.nn.Module) -> Fingerprint:
        """Fingerprint of every parameter, counted under each of its names.

        The CPU build stores the biases of low-precision layers in float32, rounded all the same.
        """
        return add(
            *(
                fingerprint(parameter.to(self._dtype))
                if parameter.numel()
                else self._packed.get(name, (0, 1))  # matches no file: packing was not watched
                for name, parameter in model.named_parameters(remove_duplicate=False)
            )
        )


def _arguments(folder: Path, settings: EngineSettings) -> dict[str, Any]:
    """Arguments of `vllm.LLM`. Weights are dummies: `load` replaces them, also the first time."""
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
        "runner": "pooling",
        "max_model_len": settings.max_length,
        "max_num_batched_tokens": max(settings.max_batch_tokens, settings.max_length),
        "max_num_seqs": settings.max_sequences,
        "enable_prefix_caching": False,
        "enable_chunked_prefill": False,
    }


def _cache_arguments(settings: EngineSettings) -> dict[str, Any]:
    """Arguments of `vllm.LLM` for a prefix cache.

    Its blocks have the fewest tokens that vLLM allows: WinoBias reuses 44 % of its tokens with 16
    and 15 % with 32.
    """
    size = BLOCK_ON_A_GPU if torch.cuda.is_available() else BLOCK
    return {
        "max_num_batched_tokens": max(settings.max_batch_tokens, size),
        "block_size": size,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
    }


def _memory_arguments(
    folder: Path, settings: EngineSettings, model_config: Any
) -> dict[str, int | float]:
    """Arguments of `vllm.LLM`; `model_config` is vLLM's own.

    Raises
    ------
    DeviceError
        The free memory of the GPU is too small.
    """
    attention = Attention(
        model_config.get_total_num_hidden_layers(),
        model_config.get_total_num_kv_heads(),
        model_config.get_head_size(),
    )
    one = token_bytes(settings, attention)
    if not torch.cuda.is_available():
        return {"kv_cache_memory_bytes": cache_bytes(settings, one, on_gpu=False)}
    free, _ = torch.cuda.mem_get_info()
    if settings.gpu_memory is not None:
        free = min(free, settings.gpu_memory)
    weights = weight_bytes(folder, settings.compute_dtype)
    size = cache_bytes(settings, one, on_gpu=True, free=free, weights=weights)
    return {"kv_cache_memory_bytes": size, "gpu_memory_utilization": _UNUSED}

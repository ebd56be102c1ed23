"""What the contenders run. Each function sets up, and returns the round that is timed."""

import os
from collections.abc import Callable
from pathlib import Path

from bench.contender import Round, timed
from bench.workload import Kind, token_ids, workload
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.tokenizers.tokenizer import Tokenizer


def bare_vllm(checkpoint: str, count: int, prompts: Kind = "plain", alone: bool = False) -> Round:
    """vLLM generating one token a prompt, with this product's engine settings and no tap.

    `alone` runs every prompt, equal ones too, and lets them share nothing.
    """
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    settings = EngineSettings("vllm")
    if alone:
        encode = Tokenizer.load(Path(checkpoint)).encode
        ids = [tuple(encode(p.text)) for p in workload(count, prompts).prompts]
    else:
        ids = token_ids(workload(count, prompts), Path(checkpoint))
    llm = LLM(
        checkpoint,
        dtype="float32",
        skip_tokenizer_init=True,
        max_model_len=max(map(len, ids)) + 1,
        max_num_batched_tokens=settings.max_batch_tokens,
        max_num_seqs=settings.max_sequences,
        block_size=32 if current_platform.is_cpu() else 16,  # as the product chooses
        enforce_eager=True,
        kv_cache_memory_bytes=512 * 2**20,
        disable_log_stats=True,
        enable_prefix_caching=not alone,
    )
    params = SamplingParams(max_tokens=1, temperature=0, detokenize=False)
    requests = [{"prompt_token_ids": list(i)} for i in ids]

    def once() -> float:
        llm.reset_prefix_cache()
        return timed(lambda: llm.generate(requests, params, use_tqdm=False))

    return once


def each_alone(checkpoint: str, count: int, prompts: Kind = "plain") -> Round:
    """Bare vLLM on every prompt by itself."""
    return bare_vllm(checkpoint, count, prompts, alone=True)


def bank(
    checkpoint: str, count: int, folder: str, prompts: Kind = "plain", keep: str | None = None
) -> Round:
    """This product: a bank on disk, full float16 by default, from loaded weights to the seal."""
    from bench.scoring import Scoring

    return Scoring(checkpoint, count, prompts, folder=folder, keep=keep).once


KINDS: dict[str, Callable[..., Round]] = {
    "bare_vllm": bare_vllm,
    "each_alone": each_alone,
    "bank": bank,
}

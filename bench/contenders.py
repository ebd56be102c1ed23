"""What the contenders run. Each function sets up, and returns the round that is timed."""

import os
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.contender import Round, timed
from bench.workload import Kind, option_prompts, token_ids, workload
from logitbank.engine.prompts.values import Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer


def bare_vllm(
    checkpoint: str,
    count: int,
    prompts: Kind = "plain",
    logprobs: str | None = None,
    alone: bool = False,
    words: int | None = None,
) -> Round:
    """vLLM generating one token a prompt, with this product's engine settings and no tap.

    `logprobs` asks for the whole vocabulary as vLLM's users do: "dict" or "flat". `alone` runs
    every prompt, equal ones too, and lets them share nothing.
    """
    settings = _quiet_vllm()
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    if alone:
        encode = Tokenizer.load(Path(checkpoint)).encode
        ids = [tuple(encode(p.text)) for p in option_prompts(count, prompts, words=words)]
    else:
        ids = token_ids(workload(count, prompts, words=words), Path(checkpoint))
    extra: dict[str, Any] = {} if logprobs is None else {"max_logprobs": -1}
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
        **extra,
    )
    params = SamplingParams(
        max_tokens=1,
        temperature=0,
        detokenize=False,
        logprobs=None if logprobs is None else -1,
        flat_logprobs=logprobs == "flat",
    )
    requests = [{"prompt_token_ids": list(i)} for i in ids]

    def once() -> float:
        llm.reset_prefix_cache()
        return timed(lambda: llm.generate(requests, params, use_tqdm=False))

    return once


def bank(
    checkpoint: str,
    count: int,
    engine: str,
    folder: str,
    prompts: Kind = "plain",
    words: int | None = None,
    keep: str | None = None,
) -> Round:
    """This product: a bank on disk, full float16 unless told, from loaded weights to the seal."""
    from bench.scoring import Scoring

    return Scoring(
        checkpoint, count, prompts, engine=engine, folder=folder, words=words, keep=keep
    ).once


def outside_model(checkpoint: str, count: int, folder: str, prompts: Kind = "plain") -> Round:
    """Share of CPU time that is not the model's; see `bench.outside`."""
    from bench.outside import outside

    return outside(checkpoint, count, prompts, folder)


def each_alone(checkpoint: str, count: int, prompts: Kind = "plain") -> Round:
    """Bare vLLM on every prompt by itself."""
    return bare_vllm(checkpoint, count, prompts, alone=True)


def transformers_loop(
    checkpoint: str, count: int, prompts: Kind = "plain", words: int | None = None
) -> Round:
    """What one writes first: padded batches of 32, every position's logits, the last one kept."""
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM

    ids = token_ids(workload(count, prompts, words=words), Path(checkpoint))
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    kept = np.empty((count, model.config.vocab_size), np.float16)

    @torch.inference_mode()
    def loop() -> None:
        for start in range(0, count, 32):
            batch = ids[start : start + 32]
            width = max(map(len, batch))
            padded = torch.tensor([[*i, *[0] * (width - len(i))] for i in batch])
            mask = torch.tensor([[1] * len(i) + [0] * (width - len(i)) for i in batch])
            logits = model(input_ids=padded, attention_mask=mask).logits
            last = logits[torch.arange(len(batch)), torch.tensor([len(i) - 1 for i in batch])]
            kept[start : start + len(batch)] = last.log_softmax(dim=1).half().numpy()

    return lambda: timed(loop)


def sentence_loop(checkpoint: str, count: int, prompts: Kind = "sentences") -> Round:
    """What one writes first: a sentence at a time, its tokens' log-probabilities kept."""
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = Tokenizer.load(Path(checkpoint))
    texts = [prompt.text for prompt in workload(count, prompts).prompts]
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    kept: list[torch.Tensor] = []

    @torch.inference_mode()
    def loop() -> None:
        kept.clear()
        for text in texts:
            ids = torch.tensor([[tokenizer.begin_id, *tokenizer.encode(text)]])
            logprobs = model(input_ids=ids).logits[0, :-1].log_softmax(dim=1)
            kept.append(logprobs.gather(1, ids[0, 1:, None])[:, 0])

    return lambda: timed(loop)


def masked_loop(
    checkpoint: str, count: int, prompts: Kind = "masked", words: int | None = None
) -> Round:
    """The same for a masked model: every position's logits, the first mask's kept."""
    import numpy as np
    import torch
    from transformers import AutoModelForMaskedLM

    tokenizer = Tokenizer.load(Path(checkpoint))
    queries = workload(count, prompts, words=words).tokenize(tokenizer).queries
    model = AutoModelForMaskedLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    kept = np.empty((len(queries), model.config.vocab_size), np.float16)

    @torch.inference_mode()
    def loop() -> None:
        for start in range(0, len(queries), 32):
            batch = queries[start : start + 32]
            width = max(len(q.ids) for q in batch)
            padded = torch.tensor([[*q.ids, *[0] * (width - len(q.ids))] for q in batch])
            mask = torch.tensor([[1] * len(q.ids) + [0] * (width - len(q.ids)) for q in batch])
            logits = model(input_ids=padded, attention_mask=mask).logits
            at = logits[torch.arange(len(batch)), torch.tensor([q.position for q in batch])]
            kept[start : start + len(batch)] = at.log_softmax(dim=1).half().numpy()

    return lambda: timed(loop)


def harness(
    checkpoint: str, count: int, prompts: Kind = "plain", words: int | None = None
) -> Round:
    """lm-evaluation-harness: log-likelihoods of the same options after the same prompts."""
    from lm_eval.models.huggingface import HFLM

    model = HFLM(checkpoint, device="cpu", dtype="float32", batch_size=32)
    return _likelihoods(model, option_prompts(count, prompts, words=words))


def harness_vllm(
    checkpoint: str, count: int, prompts: Kind = "plain", words: int | None = None
) -> Round:
    """The same with its vLLM backend."""
    _quiet_vllm()
    import vllm
    from vllm.platforms import current_platform

    assert current_platform.device_type  # found before what follows
    # It asks for a package that the CPU build has under another name.
    known = metadata.version
    metadata.version = lambda name: vllm.__version__ if name == "vllm" else known(name)
    from lm_eval.models.vllm_causallms import VLLM

    metadata.version = known
    model = VLLM(
        checkpoint, dtype="float32", max_model_len=1024, enforce_eager=True, batch_size="auto",
        kv_cache_memory_bytes=512 * 2**20,
    )  # fmt: skip
    return _likelihoods(model, option_prompts(count, prompts, words=words))


def _likelihoods(model: Any, prompts: Sequence[Prompt]) -> Round:
    from lm_eval.api.instance import Instance

    requests = [
        Instance("loglikelihood", {}, (prompt.text, option.text), i)
        for i, prompt in enumerate(prompts)
        for option in prompt.options
    ]
    return lambda: timed(lambda: model.loglikelihood(requests, disable_tqdm=True))


def _quiet_vllm() -> Any:
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
    }
    from logitbank.engine.backends.protocol import EngineSettings

    return EngineSettings("vllm")


KINDS: dict[str, Callable[..., Round]] = {
    "bare_vllm": bare_vllm,
    "bank": bank,
    "each_alone": each_alone,
    "outside_model": outside_model,
    "harness": harness,
    "harness_vllm": harness_vllm,
    "transformers_loop": transformers_loop,
    "masked_loop": masked_loop,
    "sentence_loop": sentence_loop,
}

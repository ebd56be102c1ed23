"""The README.md of an export: where it is from, and what its columns are."""

from collections.abc import Sequence

from logitbank.store import Deposit, Readable
from logitbank.store.sharing.card import escaped, front_matter, terms
from logitbank.store.sharing.facts import line

_COLUMNS = {
    "parquet": """One row a query. `ids` are the token ids of its sequence, and the scored output
is that at `position`. `token_ids` and `logprobs` are the {top_k} most probable tokens and their
log-probabilities (nats, normalised over the whole vocabulary); with `logsumexp` they are logits
again. `rest_logprob` is the logarithm of what all other tokens have together. {draws}""",
    "trl": """One row a query, with what `VLLMClient.get_sequence_logprobs` of TRL returns of a
sequence: `input_ids` are the context, of `prompt_length` tokens, and one more; `logprobs` and
`logprob_token_ids` are the {top_k} most probable tokens in its place (nats, normalised over the
whole vocabulary), `actual_logprobs` and `actual_token_ids` that token itself (−∞ where it is not
among them).""",
    "distillkit": """One row a sequence, all of one length: train with `prepacked: true` and
batches of any size. Each position has {entries} log-probabilities as float32, and their tokens,
in the bytes that `compression_config.yaml` describes: put it under `teacher:
logprob_compressor:`. Positions whose `labels` are −100 were not scored, and hold a uniform
distribution. {draws}""",
}
_DRAWS = {
    "parquet": """`draw_ids` are {tail} tokens drawn from the rest, each as often as it was drawn,
and `draw_logprobs` their log-probabilities: of any function of a token, the sum over `token_ids`
weighted by probability plus exp(`draw_log_weight`) times the sum over `draw_ids` is on average
that over the whole vocabulary.""",
    "distillkit": """{tail} of the entries are draws from the rest, each with an equal share of
its probability; a token that was drawn twice is there twice. Sums over entries, and so gradients
of the `kl` loss with `missing_probability_handling: zero`, are on average those over the whole
vocabulary.""",
}


def about(
    bank: Readable, deposits: Sequence[Deposit], *, to: str, top_k: int, tail: int, seed: int
) -> str:
    """Licence and citation of the bank, checkpoints with their tokenizers, and the columns."""
    title, licence = (line(bank.attributes.get(name)) for name in ("title", "licence"))
    draws = _DRAWS.get(to, "").format(tail=tail) if tail else ""
    lines = [
        *front_matter(title or "Distillation", licence, [], ["logitbank", "distillation"]),
        f"# {escaped(title or 'Distillation')}",
        "",
        "Written by `logitbank export`"
        f" (`--to {to} --top-k {top_k} --tail {tail} --seed {seed}`) from a bank of logits.",
        "",
        *(
            f"* `{file_name(i)}`: {escaped(str(deposit.checkpoint))}, query set"
            f" {deposit.query_set}, tokenizer `{bank.query_set(deposit.query_set).tokenizer}`,"
            f" weights `{line(deposit.spec.provenance.get('weights')) or 'unknown'}`"
            for i, deposit in enumerate(deposits)
        ),
        "",
        " ".join(_COLUMNS[to].format(top_k=top_k, entries=top_k + tail, draws=draws).split()),
        "",
    ]
    citation = str(bank.attributes.get("citation") or "").strip()
    return "\n".join([*lines, *terms(licence, citation)])


def file_name(i: int) -> str:
    """Name of the file with the i-th deposit of an export."""
    return f"data-{i}.parquet"

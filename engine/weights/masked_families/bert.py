"""BERT."""

from typing import Any

from logitbank.engine.weights.masked_family import MaskedFamily


def _encoder(vllm_config: Any, prefix: str) -> Any:
    from vllm.model_executor.models.bert import BertModel

    return BertModel(vllm_config=vllm_config, prefix=prefix)


FAMILY = MaskedFamily(
    "bert",
    tensor_names=(
        (r"^cls\.predictions\.transform\.dense\.", "head.dense."),
        (r"^cls\.predictions\.transform\.LayerNorm\.", "head.layer_norm."),
        (r"^cls\.predictions\.bias$", "head.first_bias"),
        (r"^cls\.predictions\.decoder\.bias$", "head.bias"),
        (r"^cls\.predictions\.decoder\.weight$", "head.decoder"),
        (r"^bert\.", "body."),
    ),
    encoder=_encoder,
    next_sentence=frozenset({"bert", "ernie", "fnet", "megatron-bert", "mobilebert"}),
    divided_head=frozenset({"mobilebert"}),
)

"""RoBERTa: BERT's encoder with positions that begin after the padding's id."""

from typing import Any

from logitbank.engine.weights.masked_family import MaskedFamily


def _encoder(vllm_config: Any, prefix: str) -> Any:
    from vllm.model_executor.models.bert import BertModel
    from vllm.model_executor.models.roberta import RobertaEmbedding

    return BertModel(vllm_config=vllm_config, prefix=prefix, embedding_class=RobertaEmbedding)


FAMILY = MaskedFamily(
    "roberta",
    tensor_names=(
        (r"^lm_head\.(dense|layer_norm)\.", r"head.\1."),
        (r"^lm_head\.bias$", "head.first_bias"),
        (r"^lm_head\.decoder\.bias$", "head.bias"),
        (r"^lm_head\.decoder\.weight$", "head.decoder"),
        (r"^roberta\.", "body."),
    ),
    encoder=_encoder,
    activation="gelu",  # whatever the config's hidden_act, as in transformers
    offset_positions=frozenset(
        {
            *("roberta", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "camembert"),
            *("xmod", "longformer", "mpnet", "data2vec-text", "luke", "mluke", "ibert", "esm"),
        }
    ),
)

"""Refuse checkpoints that the installed code would not compute as their authors do.

It compares a config's fields with the text of the installed transformers, and the names of tensors.
It imports no model code and reads no tensor.
"""

import importlib.util
import json
import re
from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from logitbank.engine.backends.protocol import Task
from logitbank.engine.weights.config import ModelConfig, encoder_decoder
from logitbank.engine.weights.weights import TensorHeader, check_tensors, tensor_headers
from logitbank.errors import SuiteError, WeightsError

_WRAPPERS = ("module.", "_orig_mod.", "_forward_module.", "_fsdp_wrapped_module.")
"""Prefixes of all tensor names that DataParallel, torch.compile, Lightning and FSDP add."""

_NOT_CAUSAL = frozenset(
    {
        *("bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie"),
        *("megatron-bert", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer"),
        *("xlm-roberta", "xlm-roberta-xl", "xlnet", "xmod"),
    }
)
"""Model types whose causal class in transformers lets a token see later ones: XLNet permutes
positions, the others are encoders."""

_UNPROVED = frozenset({"openai-gpt", "ctrl", "prophetnet"})
"""Model types of which neither engine takes the positions and tied weights as they are here."""

_HARMLESS = re.compile(
    # What the file is, and who made it.
    r"^_|^(transformers|torch|adapter_transformers|tokenizer|onnx)|version$|^custom_|_config$"
    r"|^(architectures|auto_map|model_type|dtype|name|license|author|languages?|prefix|code)$"
    r"|^model_(name|id|parallel|max_length)|transformers[._]?js|quantization|unsloth"
    # Training, and how fast it runs.
    r"|drop|init|grad|checkpoint|train|dataset|seed$|cache|past$|fus(ed|ion)|flash|kernel|compile"
    r"|padding|repad|unpad|pretraining_tp|deterministic|loss|aux|label|ignore_index|neftune|bucket"
    r"|^(fp|bf)16|fp32|precision|device|verbose|^max_(length|seq)|^n_ctx$|seq(uence)?_length$"
    # Other heads and tasks, and generation.
    r"|^(summary|pooler|classifier|clf|task|problem|finetuning|generation|generator|decoder_start)"
    r"|^(suppress|forced|do_sample|temperature|top_[kp]$|num_beam|num_return|output_|return_)"
    r"|^(min_length|early_stopping|typical_p|xla_device|length_|diversity_)|ngram_size$|bad_?words"
    r"|^(newlinemode|nobreakmodel|welcome|antemplate|chat_template)$"
    r"|penalty$|_tokens?(_ids?)?$|_idx$|^directionality$|^tie_|^is_causal$|^causal"
    # What another field contains too, or is constant in the types that have it.
    r"|^(n_)?vocab|^(d_model|d_inner|n_inner|n_embed|n_layers?|num_layers|hidden_dim|hidden_act)$"
    r"|^(rms_norm|qk_norm|skip_bias_add|offset_alibi|learned_pos_emb|rope_pct)$|(^|_)eps$"
    # Options of XLM's training program.
    r"|^(amp|bptt|command|clip_grad_norm|exp_|lg_|lgs$|langs$|max_(batch_size|vocab|len)$|mlm_|min_)"
    r"|^(word_(blank|keep|mask|pred|rand|shuffle)|share_inout_emb|same_enc_dec|encoder_only$)"
    r"|^(group_by_size|sample_alpha|split_data|stopping_criterion|tokens_per_batch|validation_)"
    r"|^(max_window_layers|layer_types|sliding_window_size|pad_vocab_size_multiple)$"
)
"""Names of fields that change no logit if they are not read, gathered from released configs."""

_KNOWN_POSITIONS = ("absolute", "sans_pos", "rope", "rotary")
"""Values of `position_embedding_type` that change nothing."""


def check_fields(folder: Path, *, trust_remote_code: bool = False) -> None:
    """Refuse a config with a field that may change the model and that no code reads.

    A field is read if transformers' files of the model type mention it.

    Raises
    ------
    SuiteError
        Some field is unread; the message has the value of the first.
    """
    path = folder / "config.json"
    config = json.loads(path.read_bytes())
    if "is_encoder_decoder" not in config and _is_encoder_decoder(
        str(config.get("model_type", ""))
    ):
        raise encoder_decoder(config)
    if trust_remote_code and "auto_map" in config:
        return  # the code that comes with it reads it
    if unread := unread_fields(config):
        more = f" (and {', '.join(unread[1:4])})" if unread[1:] else ""
        raise SuiteError(
            f"{path} has {unread[0]} = {json.dumps(config[unread[0]])[:60]}{more}, which"
            f" transformers {version('transformers')} does not read for models of type"
            f" {config['model_type']!r}. Both engines would compute another model. Use another"
            " checkpoint, or delete the field if it changes no logit"
        )


def unread_fields(config: Mapping[str, object]) -> list[str]:
    """Names of fields that may change the model and that transformers does not read.

    Empty if transformers does not know the model type.

    Examples
    --------
    >>> unread_fields({"model_type": "bert", "position_embedding_type": "relative_key"})
    ['position_embedding_type']
    >>> unread_fields({"model_type": "bert", "position_embedding_type": "absolute"})
    []
    """
    words = _words(str(config.get("model_type", "")))
    return [
        name
        for name, value in config.items()
        if words and name not in words and not (_HARMLESS.search(name) or _is_neutral(name, value))
    ]


def _is_neutral(name: str, value: object) -> bool:
    if not value or (value in (1, -1) and value is not True):  # 1: a factor; -1: no limit
        return True
    return name == "position_embedding_type" and value in _KNOWN_POSITIONS


@cache
def _words(model_type: str) -> frozenset[str]:
    """All words of transformers' files that read a config of this type."""
    if not _text(model_type, "configuration"):
        return frozenset()
    root = _transformers()
    assert root is not None
    common = ("configuration_utils.py", "modeling_utils.py", "modeling_rope_utils.py")
    texts = [_text(model_type, kind) for kind in ("configuration", "modeling")]
    texts += [(root / name).read_text() for name in common]
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


@cache
def _transformers() -> Path | None:
    """Folder of the installed transformers."""
    found = importlib.util.find_spec("transformers")  # imports nothing
    return None if found is None or found.origin is None else Path(found.origin).parent


@cache
def _text(model_type: str, kind: Literal["configuration", "modeling"]) -> str:
    """Text of transformers' files of one kind for a model type; empty if there are none."""
    root = _transformers()
    if root is None or not re.fullmatch(r"[\w.-]{1,80}", model_type):
        return ""
    mappings = (root / "models" / "auto" / "auto_mappings.py").read_text()
    modules = re.findall(rf'\("{re.escape(model_type)}", "([a-z0-9_]+)"\)', mappings)
    folders = [root / "models" / name for name in (*modules, model_type.replace("-", "_"))]
    files = [path for each in dict.fromkeys(folders) for path in each.glob(f"{kind}_*.py")]
    return "\n".join(path.read_text() for path in files)


def takes_any_attention(model_type: str) -> bool:
    """Whether transformers' code of a model type takes another library's attention, as vLLM's."""
    return "_supports_attention_backend = True" in _text(model_type, "modeling")


def _is_encoder_decoder(model_type: str) -> bool:
    """Whether transformers takes models of this type for encoder–decoder ones by default."""
    text = _text(model_type, "configuration")
    return bool(re.search(r"\bis_encoder_decoder(: bool)?( \| None)? = True\b", text))


def check_architecture(folder: Path, config: ModelConfig, task: Task) -> None:
    """Refuse a model that does not predict next tokens from the tokens before them alone.

    Raises
    ------
    SuiteError
        The model is not causal, or no engine takes it.
    WeightsError
        See `check_prefix`, `check_tensors` and `check_head`.
    """
    name = ", ".join(config.architectures) or config.model_type
    if config.model_type in _UNPROVED:
        raise SuiteError(
            f"{name} is not supported: neither engine takes models of type {config.model_type!r} as"
            " they are. Compute its logits with another tool, and store them with Bank.deposit"
        )
    if task == "causal" and config.model_type in _NOT_CAUSAL:
        raise SuiteError(
            f"{name} is not supported: a model of type {config.model_type!r} does not predict each"
            " token from the tokens before it alone. Use prompts with a [MASK], or a causal model"
        )
    try:
        headers = tensor_headers(folder)
    except (WeightsError, OSError):
        return  # raised when the checkpoint is run
    check_prefix(folder, headers)
    check_tensors(folder, headers)
    check_head(folder, headers, config)


_EMBEDDING = re.compile(r"(^|[._])(emb|wte|w\.)")
"""Tensors with a row for each entry of the vocabulary that are no heads."""


def check_head(folder: Path, headers: Mapping[str, TensorHeader], config: ModelConfig) -> None:
    """Refuse a head under a name that transformers' files of the model type do not have.

    Raises
    ------
    WeightsError
        A tensor has one row for each entry of the vocabulary, and no class reads its name.
    """
    text = _text(config.model_type, "modeling")
    known = {*re.findall(r"\bself\.(\w+)\b", text)}
    known |= {*re.findall(r'base_model_prefix = "(\w+)"', text)}
    if config.legacy_head:
        known.discard("lm_predictions")
    unread = sorted(
        name
        for name, header in headers.items()
        if text and header.shape[:1] == (config.vocab,)
        if not _EMBEDDING.search(name)
        if name.partition(".")[0] not in known
    )
    if unread:
        head = ".".join(unread[0].split(".")[:-1])
        raise WeightsError(
            f"{folder} has its output layer under the name {head}.*, which transformers"
            f" {version('transformers')} does not read for models of type {config.model_type!r}. It"
            " would put random numbers in its place. Use a checkpoint whose output layer has the"
            " names of transformers, or compute its logits with another tool"
        )


def check_prefix(folder: Path, names: Collection[str]) -> None:
    """Refuse tensors that all have a training wrapper's prefix in their names.

    Raises
    ------
    WeightsError
        All tensor names have such a prefix.
    """
    for prefix in _WRAPPERS:
        if names and all(name.startswith(prefix) for name in names):
            raise WeightsError(
                f"{folder}: all {len(names)} tensor names begin with {prefix!r}, which a training"
                f" wrapper added. Save the tensors again under name.removeprefix({prefix!r})"
            )

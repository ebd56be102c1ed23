"""Batches of sequences of one length: masks without a question, and the library's logits."""

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask, sdpa_mask

from logitbank.engine.backends.hf.backend import TransformersBackend
from logitbank.engine.backends.hf.model import read_model
from logitbank.engine.backends.hf.one_length import no_padding
from logitbank.engine.backends.protocol import ComputeDtype, EngineSettings
from logitbank.store.format.schema import Query
from tests.support.checkpoints import MASKED_ARCHITECTURES, VOCAB, Architecture, make_checkpoint
from tests.support.no_questions import no_questions

# X-MOD's adapters look at tensors, GPT-Neo's attention sends a number in each layer.
ALL = [name for name in get_args(Architecture) if name not in ("xmod", "gpt_neo")]
META = torch.device("meta")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def inputs_of(ids: torch.Tensor, architecture: Architecture) -> dict[str, Any]:
    masked = architecture in MASKED_ARCHITECTURES
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)} | (
        {} if masked else {"use_cache": False}
    )


def model_of(folder: Path, architecture: Architecture, dtype: ComputeDtype) -> Any:
    make_checkpoint(folder, seed=1, architecture=architecture)
    task = "masked" if architecture in MASKED_ARCHITECTURES else "causal"
    return read_model(
        folder, EngineSettings("transformers", task, compute_dtype=dtype)
    ).model.eval()


@pytest.mark.parametrize(
    ("architecture", "dtype"),
    [*((name, "float32") for name in ALL), ("gpt_neox", "bfloat16"), ("bert", "bfloat16")],
)
def test_masks_are_made_without_a_question_and_logits_are_the_library_s(
    architecture: Architecture, dtype: ComputeDtype, tmp_path: Path
) -> None:
    model = model_of(tmp_path / "tiny", architecture, dtype)
    ids = torch.randint(5, 600, (3, 17), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = model(**inputs_of(ids, architecture))[0]
        with no_padding(17):
            assert torch.equal(model(**inputs_of(ids, architecture))[0], expected)
        model.to(META)
        with no_padding(17), no_questions():
            model(**inputs_of(torch.empty(3, 17, dtype=torch.long, device=META), architecture))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("architecture", ["mistral", "gemma2"])
def test_windows_stay_windows(architecture: Architecture, attention: str) -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}
    config = AutoConfig.for_model(
        architecture, vocab_size=VOCAB, num_key_value_heads=2, intermediate_size=64, **sizes
    )
    ids = torch.randint(5, 600, (2, 17), generator=torch.Generator().manual_seed(0))
    found = []
    for window in (4, 100):
        config.sliding_window = window
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
        with torch.inference_mode():
            expected = model(**inputs_of(ids, architecture)).logits
            with no_padding(17):
                found.append(model(**inputs_of(ids, architecture)).logits)
        assert torch.equal(found[-1], expected)
    assert not torch.allclose(*found, atol=1e-3)


@pytest.mark.parametrize("length", [1, 17, 32])
def test_what_a_model_pads_itself_stays_unseen(length: int) -> None:
    """Longformer pads a sequence to whole windows, and its mask says where."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = AutoConfig.for_model(
        "longformer", vocab_size=VOCAB, attention_window=16, intermediate_size=64, **sizes
    )
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(config).eval()
    inputs = inputs_of(torch.randint(5, 600, (2, length)), "bert")
    with torch.inference_mode():
        expected = model(**inputs).logits
        with no_padding(length):
            assert torch.equal(model(**inputs).logits, expected)


@pytest.mark.parametrize("architecture", ["bloom", "bert"])
def test_the_library_s_masks_are_there_again_after_a_pass(
    architecture: Architecture, tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "tiny", seed=1, architecture=architecture)
    masked = architecture in MASKED_ARCHITECTURES
    task = "masked" if masked else "causal"
    backend = TransformersBackend(folder, EngineSettings("transformers", task, max_length=8))
    backend.load(folder, checkpoint="tiny")
    inside = list[bool]()

    def own() -> bool:
        names = {"sdpa": sdpa_mask, "eager": eager_mask}
        return all(ALL_MASK_ATTENTION_FUNCTIONS[name] is mask for name, mask in names.items())

    assert backend._model is not None
    backend._model.register_forward_pre_hook(lambda *_: inside.append(own()))
    assert own()
    backend.score([Query((7, 8, 9), 2, "mask" if masked else "next_token")], lambda *_: None)
    assert inside == [False]
    assert own()
    with pytest.raises(ValueError, match="in a pass"), no_padding(3):
        raise ValueError("in a pass")
    assert own()

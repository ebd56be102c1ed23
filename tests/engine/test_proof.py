"""Fingerprints of weights: what they must not see, and what they must."""

from pathlib import Path

import pytest
import torch

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.weights.proof import Ledger, add, fingerprint, is_head
from logitbank.errors import WeightsError
from tests.support.checkpoints import make_checkpoint
from tests.support.preloaded import Preloaded, require_vllm


def test_fusing_transposing_and_zero_padding_do_not_change_the_sum() -> None:
    q, k = torch.randn(3, 4), torch.randn(3, 4)
    fused = torch.cat([k.T, q.T], dim=1)
    padded = torch.cat([fused, torch.zeros(2, 6)])
    assert add(fingerprint(q), fingerprint(k)) == fingerprint(fused) == fingerprint(padded)


def test_hand_worked_power_sums() -> None:
    # float16: 1.0 is 0x3C00 = 15360, 2.0 is 0x4000 = 16384
    assert fingerprint(torch.tensor([1.0, 2.0, 0.0], dtype=torch.float16)) == (
        31744,
        15360**2 + 16384**2,
    )


def test_one_changed_element_changes_the_fingerprint() -> None:
    weight = torch.randn(1000)
    changed = weight.clone()
    changed[500] = torch.nextafter(weight[500], torch.tensor(9.0))
    assert fingerprint(weight) != fingerprint(changed)


def ledger(*, tied: bool, weights: dict[str, torch.Tensor]) -> tuple[Ledger, list[str]]:
    book = Ledger(torch.float32, tied)
    return book, [name for name, _ in book.record(iter(weights.items()))]


def test_stale_weights_are_an_error_that_names_the_checkpoint() -> None:
    old, new = torch.randn(4, 4), torch.randn(4, 4)
    book, _ = ledger(tied=False, weights={"w": new})
    book.check(fingerprint(new), checkpoint="m step 1", instead="wait")
    with pytest.raises(WeightsError, match="m step 1: after the swap the engine's weights are not"):
        book.check(fingerprint(old), checkpoint="m step 1", instead="wait")
    with pytest.raises(WeightsError, match="scored with them; use pens, and report this arch"):
        book.check(fingerprint(old), checkpoint="m step 1", instead="use pens")


def test_a_tied_embedding_is_supplied_again_as_the_head() -> None:
    embedding, rest = torch.randn(8, 4), torch.randn(4)
    book, names = ledger(tied=True, weights={"transformer.wte.weight": embedding, "norm": rest})
    assert names == ["transformer.wte.weight", "norm", "lm_head.weight"]
    once = add(fingerprint(embedding), fingerprint(rest))
    book.check(once, checkpoint="c", instead="wait")
    book.check(add(once, fingerprint(embedding)), checkpoint="c", instead="wait")
    with pytest.raises(WeightsError):
        book.check(add(once, fingerprint(torch.randn(8, 4))), checkpoint="c", instead="wait")


def test_a_head_in_the_file_is_not_supplied_twice() -> None:
    embedding = torch.randn(8, 4)
    weights = {"wte.weight": embedding, "lm_head.weight": embedding}
    book, names = ledger(tied=True, weights=weights)
    assert names == ["wte.weight", "lm_head.weight"]
    book.check(fingerprint(embedding), checkpoint="c", instead="wait")
    book.check(add(fingerprint(embedding), fingerprint(embedding)), checkpoint="c", instead="wait")


def test_heads_are_known_by_name() -> None:
    assert is_head("model.lm_head.weight")
    assert not is_head("model.embed_tokens.weight")


def test_rebuilt_buffers_are_excluded() -> None:
    weights = {
        "esm.encoder.layer.0.attention.self.rotary_embeddings.inv_freq": torch.ones(2),
        "gpt_neox.layers.0.attention.bias": torch.ones(1, 1, 4, 4),
        "gpt_neox.layers.0.attention.rotary_emb.inv_freq": torch.ones(2),
        "gpt_neox.layers.0.attention.dense.bias": torch.ones(4),
    }
    _, names = ledger(tied=False, weights=weights)
    assert names == ["gpt_neox.layers.0.attention.dense.bias"]


@pytest.mark.vllm
def test_a_tensor_that_vllm_holds_otherwise_is_found_also_where_it_is_repacked(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    require_vllm()
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture="llama_tied")
    norm, repacked = "model.norm.weight", "model.layers.1.self_attn.k_proj.weight"
    names = [norm, repacked, "model.layers.0.mlp.down_proj.weight"]
    driver, settings = "tests.support.engine_driver:refused_swaps", EngineSettings("vllm")
    assert preloaded.run("vllm", tmp_path, driver, settings, folder, names) == names

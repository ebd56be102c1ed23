"""Products of linear layers by oneDNN, where MKL is slow, against PyTorch's own."""

import pytest
import torch
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM

from logitbank.engine.backends import matmul

pytestmark = pytest.mark.numerical


@pytest.mark.parametrize("shape", [(7, 24), (2, 3, 24), (1, 24)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_a_product_is_that_of_float64_to_rounding(shape: tuple[int, ...], with_bias: bool) -> None:
    torch.manual_seed(0)
    rows, weight, bias = torch.randn(shape), torch.randn(40, 24), torch.randn(40)
    for laid_out in (weight, weight.t().contiguous().t()):
        product = matmul.onednn_linear(rows, laid_out, bias if with_bias else None)
        exact = functional.linear(
            rows.double(), weight.double(), bias.double() if with_bias else None
        )
        assert product.dtype == torch.float32
        assert (product - exact).abs().max() < 1e-5


@pytest.mark.parametrize(
    "model",
    [
        GPTNeoXForCausalLM(
            GPTNeoXConfig(
                vocab_size=50,
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
            )
        ),
        GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4)),
    ],
    ids=["gpt_neox", "gpt2"],
)
def test_a_model_says_the_same_by_either_and_uses_weights_that_are_copied_in(
    model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.arange(12)[None]
    count = 0

    def counted(
        rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        nonlocal count
        count += 1
        return functional.linear(rows, weight, bias)

    with torch.inference_mode():
        model.eval()
        plain = model(ids).logits
        monkeypatch.setattr(matmul, "onednn_is_faster", lambda: True)
        matmul.use_fast_matmul(model)
        torch.testing.assert_close(model(ids).logits, plain, rtol=1e-5, atol=1e-5)
        monkeypatch.setattr(matmul, "onednn_linear", counted)
        torch.testing.assert_close(model(ids).logits, plain, rtol=1e-5, atol=1e-5)
        assert count == 2 * 4 + 1
        for parameter in model.parameters():
            parameter.mul_(2)
        assert not torch.allclose(model(ids).logits, plain, atol=1e-3)


def test_narrow_and_empty_products_are_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "onednn_is_faster", lambda: True)
    weight = torch.randn(4, 3)
    assert matmul.linear(torch.randn(0, 3), weight).shape == (0, 4)
    narrow = matmul.linear(torch.randn(2, 3).bfloat16(), weight.bfloat16())
    assert narrow.dtype == torch.bfloat16

"""Numbers as arrays hold them: what rounding to bfloat16 gives, and that reading loses nothing."""

import numpy as np
import pytest

from logitbank.store.format.numbers import as_float32, as_stored

torch = pytest.importorskip("torch")


def test_bfloat16_is_the_nearest_and_of_two_the_even() -> None:
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), 0.1, 3.4e38, -0.0], np.float32)
    nearest = [1.0, 1 + 2**-6, -1.0, 0.10009765625, np.inf, -0.0]
    np.testing.assert_array_equal(as_float32(as_stored(values, "bfloat16")), nearest)


def test_bfloat16_is_torch_s() -> None:
    draw = np.random.default_rng(0)
    bits = draw.integers(0, 2**32, 200_000, np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values)].reshape(-1, 1)
    ours = as_float32(as_stored(values, "bfloat16"))
    np.testing.assert_array_equal(ours, torch.from_numpy(values).bfloat16().float().numpy())


def test_every_number_of_float16_is_the_same_in_float32() -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)].reshape(-1, 16)
    wide = as_float32(finite)
    assert np.array_equal(wide.view(np.uint32), finite.astype(np.float32).view(np.uint32))
    assert np.array_equal(as_stored(wide, "float16").view(np.uint16), finite.view(np.uint16))

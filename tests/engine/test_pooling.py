"""Our pooler gives the right rows in the model runner that vLLM takes on a GPU. None is used."""

from pathlib import Path

import pytest

from tests.support.preloaded import Preloaded, require_vllm


@pytest.mark.vllm
@pytest.mark.parametrize(("one_size", "sizes"), [(False, [4, 1]), (True, [128, 128])])
def test_rows_with_a_cached_prefix_chunks_and_padding(
    one_size: bool, sizes: list[int], preloaded: Preloaded, tmp_path: Path
) -> None:
    """State 10 s + p of position p in sequence s becomes the logit 100 s + 10 p, in any order.

    Four tokens of B are cached, so row 3 at position 1 comes out later. In deterministic runs every
    product with the head has 128 rows.
    """
    require_vllm()
    case = "tests.support.pooling_cases:pooled"
    done, rows, head_sizes = preloaded.run("vllm", tmp_path, case, one_size)
    assert done == [[True, False, True], [True]]
    assert rows == {0: 140.0, 1: 120.0, 2: 260.0, 4: 320.0, 5: 380.0}
    assert head_sizes == sizes

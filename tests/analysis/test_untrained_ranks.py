"""An output layer of zeros gives every output the same logit; ranks there are the middle one."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.analysis import fairness_metric
from logitbank.analysis.frames.expressions import everything_ties
from tests.support.fairness_cases import FEMALE, MALE, scan_frame
from tests.support.preloaded import require_engine
from tests.support.row_scores import scores_of

VOCAB = 640


def flat(*, logprob: float, ties: int) -> pl.LazyFrame:
    frame = scan_frame(np.zeros((1, 1, 2, 3)), gold=[MALE, FEMALE], ranks=1, ties=ties)
    return frame.with_columns(logprob=pl.lit(logprob))


def test_the_average_rank_of_equal_outputs_is_the_middle_one() -> None:
    result = fairness_metric(scores_of(flat(logprob=-np.log(VOCAB), ties=VOCAB - 1)), bootstrap=0)
    ranks = result.average_rank.filter(pl.col("gold").is_in(["male", "female"]))["average_rank"]
    assert ranks.to_list() == [(1 + VOCAB) / 2] * 2
    assert result.counts["tied"].to_list() == [1, 1, 0]


def test_few_ties_at_the_top_keep_the_competition_rank() -> None:
    table = fairness_metric(scores_of(flat(logprob=-3.0, ties=2)), bootstrap=0).average_rank
    assert table["average_rank"].to_list()[:2] == [1.0, 1.0]


def test_only_rows_without_any_order_are_so() -> None:
    rows = pl.DataFrame(
        {
            "rank": [1, 1, 1, 2],
            "ties": [3, 3, 0, 3],
            "logprob": [np.log(0.25), np.log(0.2), 0.0, np.log(0.25)],
        }
    )
    assert rows.select(everything_ties()).to_series().to_list() == [True, False, False, False]


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("keep", ["full", "topk:3", "options", "hidden"])
def test_a_checkpoint_of_zeros_has_the_middle_rank_at_every_storage_level(
    tmp_path: Path, keep: str
) -> None:
    require_engine()
    from safetensors.torch import load_file, save_file

    import logitbank
    from logitbank.engine.extract import extract
    from logitbank.engine.prompts.prompt_set import PromptSet
    from logitbank.engine.prompts.values import Option, Prompt
    from tests.support.checkpoints import make_checkpoint

    file = make_checkpoint(tmp_path / "tiny/step0", seed=1, vocab=VOCAB) / "model.safetensors"
    tensors = load_file(file)
    tensors["embed_out.weight"] *= 0
    save_file(tensors, file, metadata={"format": "pt"})
    options = (Option("he", " he"), Option("she", " she"))
    prompts = PromptSet("mine", (Prompt("a", " the nurse said", options, answer="she"),))
    bank = tmp_path / "b.zarr"
    extract(bank, suites=str(tmp_path / "tiny"), prompts=prompts, engine="transformers", keep=keep,
            canary_every=0)  # fmt: skip
    study = logitbank.options(bank)
    assert study.tables["shares"]["rank"].to_list() == [(1 + VOCAB) / 2] * 2
    curves = study.tables["measures"].filter(measure="answer_rank")
    assert curves["value"].to_list() == [(1 + VOCAB) / 2]

"""The model of `make real`: both engines against plain transformers, prompt by prompt.

It converts and fine-tunes the model where `make real` has not.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

from logitbank.engine.backends.protocol import EngineName
from logitbank.engine.extract import extract
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.scoring import target_tokens
from logitbank.store import Bank
from tests.support.paths import ROOT
from tests.support.preloaded import require_vllm

DATA = Path(os.environ.get("LOGITBANK_DATA", ROOT.parent / "shared" / "data"))
OPTIONS, WHOLE = 1.2e-4, 3e-4
"""Nats. Of options vLLM was 6.5e-5 away and transformers, in batches, 5.0e-5; of all 49,152 outputs
of 1,433 rows 1.5e-4 and 1.1e-4."""
HIGH = 100
"""Ranks from which on neighbours are so close that the last bits of a logit decide: of 1,765, vLLM
had 8 that differed by one place, the highest of them 529."""

pytestmark = [
    pytest.mark.long,
    # huggingface's packages, and the reader of GGUF files, use what others call outdated.
    pytest.mark.filterwarnings("default"),
]

Key = tuple[str, str, int]
"""Prompt set, prompt and, of its option orders, which."""


class Case(NamedTuple):
    """Prompts, and the rows of plain transformers for each, in the order of its tokens."""

    sets: tuple[PromptSet, ...]
    rows: Mapping[Key, np.ndarray]
    tokens: Mapping[Key, list[int]]
    """That follow in the text; -1 where it ends."""


@pytest.fixture(scope="module")
def series() -> Path:
    from scripts.real.tuning import series
    from scripts.real.weights import base_model

    folder = ROOT / "real"
    base_model(folder / "base")
    series(folder / "base", folder / "checkpoints", lambda update, loss: None)
    return folder / "checkpoints"


@pytest.fixture(scope="module")
def case(series: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    from scripts.real.samples import samples

    tmp = tmp_path_factory.mktemp("reference")
    sets = samples(DATA)
    texts = {
        (each.name, prompt.id, prompt.order_seed or 0): (
            (prompt.parts["context"], prompt.parts["target"])
            if prompt.scored is target_tokens
            else (prompt.text, None)
            if each.has_options
            else ("", prompt.text)
        )
        for each in sets
        for prompt in each.prompts
    }
    (tmp / "texts.json").write_text(json.dumps([*texts.values()]))
    files = [series / "step40", tmp / "texts.json", tmp / "reference.npz"]
    # As a module: the tests' own `tokenizers` would stand before the package of that name.
    subprocess.run(
        [sys.executable, "-m", "tests.support.real_reference", *files], cwd=ROOT, check=True
    )
    found = np.load(tmp / "reference.npz")
    logits, text, token = found["logits"], found["text"], found["token"]
    return Case(
        sets,
        {key: logits[text == number] for number, key in enumerate(texts)},
        {key: token[text == number].tolist() for number, key in enumerate(texts)},
    )


@pytest.mark.parametrize("engine", ["transformers", pytest.param("vllm", marks=pytest.mark.vllm)])
def test_a_real_model_s_bank_is_what_plain_transformers_gives(
    engine: EngineName, series: Path, case: Case, tmp_path: Path
) -> None:
    if engine == "vllm":
        require_vllm()
    path = tmp_path / "real.zarr"
    summary = extract(
        path,
        suites=str(series),
        steps="40",
        prompts=case.sets,
        engine=engine,
        dtype="float32",
        canary_every=0,
    )
    assert summary.complete
    scores = pl.concat(listed(Bank.open(path), each.name) for each in case.sets)
    options, largest = largest_differences(Bank.open(path), scores, case)
    ranks = compared_ranks(scores, case, margin=2 * largest)
    print(f"{engine}: {len(case.rows)} prompts, {options:.2e} and {largest:.2e} nats, {ranks}")
    assert options <= OPTIONS
    assert largest <= WHOLE
    assert ranks.unexplained == 0
    assert ranks.high > 1000
    assert ranks.high_apart == 0
    assert hits(scores) == expected_hits(case)


def listed(bank: Bank, name: str) -> pl.DataFrame:
    """What the bank has of a prompt set: one line for each prompt, piece and option."""
    scan = bank.scan(name).with_columns(pl.col("order_seed").fill_null(0), of=pl.lit(name))
    columns = ["of", "prompt_id", "order_seed", "piece", "option", "token", "rank", "ties"]
    return scan.select(*columns, "query_set", "row", "logit").sort(columns[:5]).collect()


def largest_differences(bank: Bank, scores: pl.DataFrame, case: Case) -> tuple[float, float]:
    """Of the options' own logits, which are stored apart, and of all logits of all rows."""
    # Whole deposits at once: a row by itself costs the reading, and the check, of its block.
    rows = {
        d.query_set: d.logprobs() + d.logsumexp()[:, None].astype(np.float64)
        for d in bank.deposits()
    }
    options = largest = 0.0
    for row in scores.iter_rows(named=True):
        key = (row["of"], row["prompt_id"], row["order_seed"])
        want = case.rows[key][row["piece"]].astype(np.float64)
        whole = rows[row["query_set"]][row["row"]]
        options = max(options, abs(row["logit"] - want[row["token"]]))
        largest = max(largest, np.abs(whole - want).max())
    return float(options), float(largest)


class Ranks(NamedTuple):
    """Ranks of options and of tokens of sentences, against those of plain transformers."""

    compared: int
    apart: int
    high: int
    """Compared, of at most `HIGH`."""
    high_apart: int
    unexplained: int
    """Apart by more than logits that are `margin` away can bring about."""


def compared_ranks(scores: pl.DataFrame, case: Case, margin: float) -> Ranks:
    apart = high = high_apart = unexplained = 0
    for row in scores.iter_rows(named=True):
        key = (row["of"], row["prompt_id"], row["order_seed"])
        want, token = case.rows[key][row["piece"]], case.tokens[key][row["piece"]]
        assert token in (-1, row["token"])
        own = want[row["token"]]
        rank = 1 + np.count_nonzero(want > own)
        least, most = (
            1 + np.count_nonzero(want > own + margin),
            np.count_nonzero(want >= own - margin),
        )
        apart += int(row["rank"] != rank)
        high += int(rank <= HIGH)
        high_apart += int(rank <= HIGH and row["rank"] != rank)
        unexplained += int(not least <= row["rank"] <= most)
    options = 3 * sum(of == "winobias" for of, _, _ in case.rows)
    tokens = sum(len(rows) for (of, _, _), rows in case.rows.items() if of != "winobias")
    assert len(scores) == options + tokens
    return Ranks(len(scores), apart, high, high_apart, unexplained)


def hits(scores: pl.DataFrame) -> set[str]:
    """Passages of LAMBADA whose last word's tokens are all the only maximum."""
    words = scores.filter(of="lambada").group_by("prompt_id")
    right = words.agg(hit=((pl.col("rank") == 1) & (pl.col("ties") == 0)).all())
    return set(right.filter("hit")["prompt_id"])


def expected_hits(case: Case) -> set[str]:
    return {
        name
        for (of, name, order), rows in case.rows.items()
        if of == "lambada" and rows.argmax(axis=1).tolist() == case.tokens[of, name, order]
    }

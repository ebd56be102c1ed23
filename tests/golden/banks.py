"""What the golden files are about: banks and files made of seeds, or recorded; no model is run."""

import json
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl
from safetensors.numpy import save_file

from logitbank.store import Bank, CheckpointId, DepositSpec, Keep, Layout, Query, QuerySet
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.tables.prompt_tables import option_tokens
from tests.data import make_format_1, make_format_1_states
from tests.support import (
    evaluation_banks,
    gest_cases,
    small_banks,
    stereoset_cases,
    unqover_cases,
)
from tests.support.checkpoints import write_tokenizer
from tests.support.fluctuation_cases import two_runs
from tests.support.lm_eval_banks import harness_bank
from tests.support.made_once import made_once
from tests.support.paths import ROOT

DATA = ROOT / "tests" / "data"
CONFIG = {
    "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "vocab_size": 640,
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
    "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip
STEPS = (0, 32, None)
ENTRIES = evaluation_banks.VOCAB - 2
ATTRIBUTES = ("was a nurse", "was a pilot", "was a chef", "was a judge", "was rich", "was poor")
"""More than UnQover in small has, since every fourth is held out of a training."""


def demo(folder: Path) -> None:
    """A causal and a masked series of real trainings, the masked one of two runs."""
    with tarfile.open(DATA / "demo-bank.tar.xz") as archive:
        archive.extractall(folder, filter="data")


def harness(folder: Path) -> None:
    """Tasks of lm-evaluation-harness and the folder that defines them."""
    harness_bank(folder, ["weighted", "words", "python"], steps=STEPS[:2])


def families(folder: Path) -> None:
    """WinoBias, LAMBADA, CrowS-Pairs and stereotype accuracy, of one model."""
    _families(folder / "families.zarr")


def result_files(folder: Path) -> None:
    """Files of lm-evaluation-harness with the accuracy of `families` on LAMBADA's 20 passages."""
    (folder / "lambada").mkdir()
    for step, acc in {0: 0.0, 8: 0.25, 32: 0.75, 128: 0.7}.items():
        metrics = {"acc,none": acc, "acc_stderr,none": (acc * (1 - acc) / 19) ** 0.5}
        text = json.dumps({"results": {"lambada_openai": metrics}})
        (folder / "lambada" / f"toy-step{step}.json").write_text(text)


@made_once
def _families(path: Path) -> None:
    bank = Bank.create(path, title="Families", license="CC0-1.0")
    add_prompts(bank, steps=(0, 8, 32, 128))


def add_prompts(bank: Bank, *, steps: Sequence[int]) -> None:
    hits = {step: evaluation_banks.HITS[step] // 2 for step in steps}
    evaluation_banks.add_winobias(bank, steps=steps, skew_from=32)
    evaluation_banks.add_lambada(bank, hits, words=20)
    evaluation_banks.add_crows_pairs(bank, steps=steps[:2])
    evaluation_banks.add_stereotype(bank, steps=steps[:2])


def ties(folder: Path) -> None:
    _ties(folder / "ties.zarr")


@made_once
def _ties(path: Path) -> None:
    """The same prompts, of logits that are often equal: two runs, a smaller bank, and a part."""
    bank = Bank.create(path)
    add_prompts(bank, steps=())
    for seed, (model, run, keep) in enumerate(
        (("toy", "seed1", "full"), ("toy", "seed2", "options"), ("other", "main", "topk:4"))
    ):
        for step in STEPS:
            of_run = None if run == "main" else seed
            fill(bank, CheckpointId(model, run, step, of_run), keep=keep, seed=seed)
    for query_set in bank.query_sets():
        begin(bank, CheckpointId("part", step=8), query_set)


def fill(bank: Bank, checkpoint: CheckpointId, *, keep: str, seed: int) -> None:
    """Whole numbers as logits, for every query set; the last two outputs are padding."""
    for name in sorted(bank.query_sets()):
        values = whole_numbers(bank, checkpoint, name, seed)
        bank.deposit(
            values, checkpoint=checkpoint, query_set=name, keep=keep, vocab_entries=ENTRIES
        )


def whole_numbers(bank: Bank, checkpoint: CheckpointId, query_set: str, seed: int) -> np.ndarray:
    step = 99 if checkpoint.step is None else checkpoint.step
    random = np.random.default_rng((seed, sorted(bank.query_sets()).index(query_set), step))
    shape = (len(bank.query_set(query_set)), evaluation_banks.VOCAB)
    return random.integers(-3, 6, shape).astype(np.float32)


def begin(bank: Bank, checkpoint: CheckpointId, query_set: str) -> None:
    """The first of two blocks of a query set, as a run leaves it that was stopped."""
    values = whole_numbers(bank, checkpoint, query_set, 9)
    vocab = values.shape[1]
    layout = Layout(len(values), vocab, "float32", Keep("full"), len(values) // 2 + 1)
    made = {"weights": "cd" * 32, "tokenizer": "ab" * 32, "engine": "test"}
    with bank.begin(DepositSpec(checkpoint, query_set, layout, ENTRIES, made)) as writer:
        options = option_tokens(bank.path, query_set)
        block = BlockReducer(layout, 0, options=options, vocab_entries=ENTRIES)
        for i, row in enumerate(layout.rows(0)):
            block.put(i, values[row])
        writer.write(0, block.finish())


def stereoset(folder: Path) -> None:
    stereoset_cases.make_bank(folder / "stereoset.zarr", steps=(0, 8, None))
    examples = stereoset_cases.EXAMPLES
    gold = stereoset_cases.gold_data(intrasentence=examples)
    predictions = stereoset_cases.prediction_data(intrasentence=examples)
    stereoset_cases.write_json(folder / "gold.json", gold)
    stereoset_cases.write_json(folder / "published.json", predictions)


def unqover(folder: Path) -> None:
    unqover_cases.make_bank(folder / "unqover.zarr")


def gest(folder: Path) -> None:
    """Two runs, and score files of a model as they are released."""
    gest_cases.make_bank(folder / "gest.zarr")
    sentences = [(f"Sentence {i}.", i % gest_cases.STEREOTYPES + 1) for i in range(48)]
    gest_cases.write_data(folder, *sentences)
    for template in range(2):
        values = np.random.default_rng(template).normal(size=len(sentences)).round(3)
        lines = "\n".join(map(str, values.tolist()))
        (folder / f"released_template-{template}.txt").write_text(lines)


def fluctuation(folder: Path) -> None:
    """Scores as they are published, and how often professions occur."""
    table = two_runs()
    table.write_csv(folder / "scores.csv")
    jobs = [job.split(" ", 1)[1] for job in table["occupation"].unique().sort() if "[" not in job]
    totals = [
        (job, case, 10 * i + len(case)) for i, job in enumerate(jobs) for case in ("lower", "upper")
    ]
    pl.DataFrame(totals, schema=["occupation", "case", "total"], orient="row").write_csv(
        folder / "totals.csv"
    )


def debias(folder: Path) -> None:
    """UnQover's questions and StereoSet's, plain and behind a prefix, of one checkpoint."""
    bank = Bank.create(folder / "debias.zarr")
    checkpoint = CheckpointId("toy", step=8)
    with mock.patch.object(unqover_cases, "ATTRIBUTES", ATTRIBUTES):
        queries, rows = unqover_cases.add_questions(bank)
    logits = 3 * unqover_cases.logits_of(rows, 8, nurses=2.0)
    bank.deposit(logits, checkpoint=checkpoint, query_set=queries.name, keep="topk:16")
    for number, (name, condition) in enumerate(
        (("stereoset-intra", "plain"), ("stereoset-intra-prefix", "prefix"))
    ):
        count = 6 * len(stereoset_cases.EXAMPLES)
        own = QuerySet("ab" * 32, tuple(Query((number, i), 1) for i in range(count)))
        bank.add_query_set(own)
        table = stereoset_cases.prompt_rows(own, kind="masked", task="i", condition=condition)
        bank.add_prompts(name, table)
        drawn = np.random.default_rng(number).normal(size=(count, unqover_cases.VOCAB))
        bank.deposit(
            drawn.astype(np.float32), checkpoint=checkpoint, query_set=own.name, keep="topk:16"
        )


def levels(folder: Path) -> None:
    """Rows, the highest entries and options alone; states with their heads, and blocks missing."""
    make_format_1.main(folder, "contexts.zarr", make_format_1.CONTEXTS)
    make_format_1_states.main(folder)
    (folder / "states").rename(folder / "hidden.zarr")


def two_banks(folder: Path) -> None:
    """The same checkpoints in both, which differ a little; the second has one more."""
    for name, steps, shift in (("a.zarr", (0, 8), 0), ("b.zarr", (0, 8, 16), 1)):
        bank = small_banks.new_bank(folder / name)
        bank.add_tokens(small_banks.TOKENIZER, small_banks.token_table())
        for step in steps:
            values = small_banks.logits(step) + np.float32(shift / 64) * small_banks.logits(1)
            bank.deposit(
                values, checkpoint=CheckpointId("org/model", step=step),
                query_set=small_banks.QUERY_SET.name,
                provenance={"tokenizer": small_banks.TOKENIZER},
            )  # fmt: skip


def damaged(folder: Path) -> None:
    """A bank of which one object has other bytes, and another is gone."""
    two_banks(folder)
    shutil.rmtree(folder / "b.zarr")
    (folder / "a.zarr").rename(folder / "damaged.zarr")
    tables = sorted((folder / "damaged.zarr").glob("org*/**/*.parquet"))
    tables[0].write_bytes(tables[0].read_bytes()[:-1] + b"?")
    tables[-1].unlink()


def checkpoints(folder: Path) -> None:
    """Checkpoints without weights, and prompt files with and without mistakes."""
    for step in (0, 1000, 2000):
        write_tokenizer(folder / "series" / f"step{step}")
        (folder / "series" / f"step{step}" / "config.json").write_text(json.dumps(CONFIG))
        save_file({}, folder / "series" / f"step{step}" / "model.safetensors")
    write_prompts(folder / "jobs.jsonl", (" male", " female"))
    write_prompts(folder / "glued.jsonl", ("male", "female"))


def write_prompts(path: Path, options: Sequence[str]) -> None:
    lines = [
        {"id": f"j{i}", "text": f"Question: What is the gender of the {job}?\nAnswer:",
         "options": list(options), "answer": options[i % 2]}
        for i, job in enumerate(("nurse", "doctor", "clerk"))
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


Make = Callable[[Path], None]

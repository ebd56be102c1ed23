"""A folder with tasks of lm-evaluation-harness over local data, one for each form of request."""

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.paths import PUBLIC as DATA

JOBS = ("nurse", "doctor", "clerk", "mechanic")
ENDS = ("was tired", "thanked him", "was busy and argued with the doctor", "helped her")
LAST = (
    *("he", "she", "him", "naïve", "male", "female", "not", "specified"),
    *("gender", "of", "Question", "options"),
)
"""The last word of each passage."""
DOCUMENTS = 24

_CHOICE = {
    "output_type": "multiple_choice",
    "doc_to_text": "Question: What is {{name}}?\nAnswer:",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "label",
}
_ACC = [
    {"metric": name, "aggregation": "mean", "higher_is_better": True}
    for name in ("acc", "acc_norm")
]
_PYTHON = """
def shorter(docs):
    return docs.select(range(10))


def first_is_best(doc, results):
    sums = [each[0] for each in results]
    return {"first": float(sums[0] == max(sums)), "gap": max(sums) - min(sums)}
"""
_LAMBADA = {
    "output_type": "loglikelihood",
    "doc_to_text": "{{text.split(' ')[:-1]|join(' ')}}",
    "doc_to_target": "{{' '+text.split(' ')[-1]}}",
    "metric_list": [
        {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False},
        {"metric": "acc", "aggregation": "mean", "higher_is_better": True},
    ],
}
_ROLLING = {
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "{{text}}",
    "metric_list": [{"metric": m} for m in ("word_perplexity", "byte_perplexity", "bits_per_byte")],
}


def write_tasks(folder: Path) -> Path:
    """The folder with YAML files, data and one Python file.

    `jobs` (multiple choice), `inputs` (several contexts with one continuation), `info` (mutual
    information and Brier score, with spaces at the end of contexts), `words` (LAMBADA), `rolling`
    (perplexity), `python` (functions), `free` (generation); the groups `weighted` and `mixed`; of
    public data, `bbq_age` and `island`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.py").write_text(_PYTHON)
    choices = [
        {
            "name": f"the {JOBS[i % 4]} who {ENDS[i // 4 % 4]} {i}",
            "choices": [ENDS[(i + j) % 4] for j in range(2 + i % 3)],
            "label": i % 2,
            "gold": f"The {JOBS[i % 4]} said that",
        }
        for i in range(DOCUMENTS)
    ]
    texts = [
        {"text": f"The {JOBS[i % 4]} {ENDS[i % 3]} and said that {LAST[i]}"}
        for i in range(len(LAST))
    ]
    long = [{"text": " ".join(f"the {JOBS[i * j % 4]} {ENDS[j % 4]}" for j in range(9 * i + 3))}
            for i in range(7)]  # fmt: skip
    rest = choices[8:]
    _task(folder, "jobs", {**_CHOICE, "metric_list": _ACC}, choices[:8], shots=rest)
    _task(folder, "inputs", {
        **_CHOICE, "doc_to_text": "{{label}}", "doc_to_target": "{{gold}}", "metric_list": _ACC[:1],
        "doc_to_choice": "{{[name + ' one', name + ' other']}}",
    }, choices, shots=rest)  # fmt: skip
    _task(folder, "info", {
        **_CHOICE, "doc_to_text": "Question: {{name}}? Answer: ", "target_delimiter": "",
        "metric_list": [
            *_ACC[:1],
            {"metric": "acc_mutual_info", "aggregation": "mean", "higher_is_better": True},
            {"metric": "brier_score", "aggregation": "brier_score", "higher_is_better": False},
        ],
        "metadata": {"version": 3.0},
    }, [each for each in choices if len(each["choices"]) == 3])  # fmt: skip
    _task(folder, "words", _LAMBADA, texts)
    _task(folder, "rolling", _ROLLING, long)
    _task(folder, "python", {
        **_CHOICE, "process_docs": "!function own.shorter",
        "process_results": "!function own.first_is_best", "metric_list": [
            {"metric": "first", "aggregation": "mean", "higher_is_better": True},
            {"metric": "gap", "aggregation": "mean", "higher_is_better": True},
        ],
    }, choices)  # fmt: skip
    _task(folder, "free", {
        "output_type": "generate_until", "doc_to_text": "{{text}}", "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }, texts)  # fmt: skip
    by_size = [{"metric": "acc", "aggregation": "mean", "weight_by_size": True}]
    _group(folder, "weighted", ["jobs", "info"], by_size)
    _group(folder, "mixed", ["jobs", "free"], by_size)
    return folder


def write_public_tasks(folder: Path) -> None:
    """`bbq_age` and `island`: the harness's own BBQ and BLiMP, over items of the public data."""
    import lm_eval

    own = Path(lm_eval.__file__).parent / "tasks"
    _task(folder, "bbq_age", {"include": str(own / "bbq" / "bbq_multiple_choice.yaml"),
          "tag": None}, _items("bbq", "Age", 8))  # fmt: skip
    _task(folder, "island", {"include": str(own / "blimp" / "_template_yaml")},
          _items("blimp", "adjunct_island", 12))  # fmt: skip


def _items(name: str, file: str, count: int) -> list[dict[str, Any]]:
    with zipfile.ZipFile(DATA / name / "data.zip") as data:
        lines = data.read(f"{file}.jsonl").decode().splitlines()
    return [json.loads(line) for line in lines[:: len(lines) // count]][:count]


def _task(
    folder: Path,
    name: str,
    config: dict[str, Any],
    rows: Sequence[dict[str, Any]],
    *,
    shots: Sequence[dict[str, Any]] = (),
) -> None:
    files = {"test": rows, "train": shots}
    kwargs = {}
    for split, own in files.items():
        if own:
            kwargs[split] = str(folder / f"{name}-{split}.jsonl")
            Path(kwargs[split]).write_text("".join(json.dumps(row) + "\n" for row in own))
    whole = {
        "task": name, "dataset_path": "json", "dataset_name": None, "test_split": "test",
        "validation_split": None, "dataset_kwargs": {"data_files": kwargs}, **config,
    }  # fmt: skip
    if shots:
        whole |= {"training_split": "train", "fewshot_split": "train"}
    text = json.dumps(whole, indent=1, ensure_ascii=False)  # JSON is YAML
    for function in ("own.shorter", "own.first_is_best"):
        text = text.replace(f'"!function {function}"', f"!function {function}")
    (folder / f"{name}.yaml").write_text(text)


def _group(folder: Path, name: str, tasks: list[str], metrics: list[dict[str, Any]]) -> None:
    config = {"group": name, "task": tasks, "aggregate_metric_list": metrics}
    (folder / f"{name}.yaml").write_text(json.dumps(config))

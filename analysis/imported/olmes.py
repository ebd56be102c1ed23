"""What OLMES writes of a task: `<task>-predictions.jsonl`, and its requests beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from logitbank.analysis.frames.json_files import json_object
from logitbank.analysis.harness.read import checkpoint_of
from logitbank.analysis.imported.items import (
    Evaluation,
    Item,
    flag_of,
    json_lines,
    logprob_of,
    text_columns,
)
from logitbank.errors import UsageError

TOOL = "olmes"
KIND = "file of predictions"
_ENDING = "-predictions.jsonl"


def is_prediction(line: Mapping[str, Any]) -> bool:
    return "doc_id" in line and isinstance(line.get("model_output"), list)


def read_predictions(path: Path) -> Evaluation:
    """The predictions of one task, whose texts are in the requests beside them.

    Raises
    ------
    UsageError
        The requests are not there, a line is no prediction of continuations, or has other ones than
        its requests.
    """
    beside = path.with_name(path.name.removesuffix(_ENDING) + "-requests.jsonl")
    if not path.name.endswith(_ENDING) or not beside.is_file():
        raise UsageError(
            f"{path} has no texts, and {beside.name} is not beside it; put there what OLMES wrote"
            " with it"
        )
    requests, task = _requests(beside)
    items: dict[str, Item] = {}
    for where, line in json_lines(path, KIND):
        item = _item(line, requests, where)
        if item.id in items:
            raise UsageError(f"{where} has document {item.id} again; keep the lines of one run")
        items[item.id] = item
    if not items:
        raise UsageError(f"{path} has no predictions; evaluate again")
    model, step = _checkpoint(path)
    return Evaluation(
        tool=TOOL,
        version=None,
        task=task or path.name.removesuffix(_ENDING),
        items=tuple(items.values()),
        model=model,
        step=step,
        files=(path, beside),
    )


class _Requests(dict[str, list[tuple[str, str]]]):
    """Context and continuation of each request of a document, in order."""

    columns: dict[str, dict[str, str]]


def _requests(path: Path) -> tuple[_Requests, str]:
    made, task = _Requests(), ""
    made.columns = {}
    for where, line in json_lines(path, "file of requests"):
        request = line.get("request")
        if not isinstance(request, dict) or "doc_id" not in line:
            raise UsageError(f"{where} is no request of {TOOL}: it lacks `request` or `doc_id`")
        texts = request.get("context", ""), request.get("continuation")
        if not all(isinstance(text, str) for text in texts):
            raise UsageError(
                f"{where} is of a task that generates text, which has no log-probabilities of given"
                " continuations; take tasks that compare them"
            )
        document = str(line["doc_id"])
        made.setdefault(document, []).append((str(texts[0]), str(texts[1])))
        made.columns[document] = text_columns(line.get("doc"))
        task = str(line.get("task_name") or task)
    return made, task


def _item(line: Mapping[str, Any], requests: _Requests, where: str) -> Item:
    if not is_prediction(line):
        raise UsageError(f"{where} is no prediction of {TOOL}: it lacks `doc_id` or `model_output`")
    document, outputs = str(line["doc_id"]), line["model_output"]
    pairs = requests.get(document, [])
    if len(pairs) != len(outputs) or not outputs:
        raise UsageError(
            f"{where} has {len(outputs)} outputs of document {document}, and {len(pairs)} requests"
            " were made; the two files are of different runs"
        )
    if not all(isinstance(output, dict) and "sum_logits" in output for output in outputs):
        raise UsageError(
            f"{where} has outputs without `sum_logits`: the task generates text; take tasks that"
            " compare continuations"
        )
    several, label = len(pairs) > 1, line.get("label")
    return Item(
        id=document,
        text=pairs[0][0] if several else "".join(pairs[0]),
        pairs=tuple(pairs),
        logprobs=tuple(logprob_of(output["sum_logits"], where) for output in outputs),
        greedy=None if several else flag_of(outputs[0].get("is_greedy")),
        answer=_answer(label, len(pairs)) if several else None,
        columns=requests.columns[document],
    )


def _answer(label: object, count: int) -> int | None:
    return label if isinstance(label, int) and 0 <= label < count else None


def _checkpoint(path: Path) -> tuple[str | None, int | None]:
    """Model and step from the metrics beside the predictions, if they are there and name them."""
    metrics = path.with_name(path.name.removesuffix(_ENDING) + "-metrics.json")
    if not metrics.is_file():
        return None, None
    config = json_object(metrics, "file of metrics").get("model_config")
    if not isinstance(config, dict) or not config.get("model"):
        return None, None
    args = {"pretrained": str(config["model"]), "revision": config.get("revision")}
    try:
        model, _, step = checkpoint_of({"config": {"model_args": args}}, Path("metrics"))
    except UsageError:
        return str(config["model"]), None
    return model, step

"""StereoSet from released files: from parsed JSON to every table, and reading too."""

import time
from statistics import median

from bench.figures import Figure
from bench.models import DATA
from logitbank.analysis.families.stereoset import files
from logitbank.analysis.families.stereoset.gold import gold_of
from logitbank.analysis.families.stereoset.metric import stereoset_metric
from logitbank.analysis.frames.json_files import json_object

PREDICTIONS = DATA / "stereoset" / "published" / "bert-base-cased-predictions.json"
GOLD = DATA / "stereoset" / "dev-english.json"


def stereoset_tables(*, rounds: int = 9) -> list[Figure]:
    """Seconds for 12,687 candidates with 1,000 resamples, nothing drawn; the first is warm-up."""
    aggregated, whole = [], []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        labels = json_object(GOLD, "gold file")
        predictions = json_object(PREDICTIONS, "prediction file")
        parsed = time.perf_counter()
        frame = files.predictions_of(predictions, gold_of(labels, GOLD), PREDICTIONS)
        tables = stereoset_metric(frame).tables()
        end = time.perf_counter()
        aggregated.append(end - parsed)
        whole.append(end - start)
    assert len(tables["scores"]) == 15
    name = "every StereoSet table of a prediction file"
    first, *warm = aggregated
    read_first, *read = whole
    return [
        Figure(
            f"{name}, from parsed JSON", median(warm), "s", "≤ 0.3 s", median(warm) <= 0.3, warm,
            f"12,687 candidates, 1,000 resamples; the first call {first:.2f} s",
        ),
        Figure(
            f"{name}, reading both files too", median(read), "s", rounds=read,
            detail=f"the first call {read_first:.2f} s",
        ),
    ]  # fmt: skip

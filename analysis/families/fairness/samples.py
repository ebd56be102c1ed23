"""What the prompts of one right answer give at every checkpoint: values, means, resampled means.

Four tables ask for the same ones, so each is worked out once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from logitbank.analysis.families.fairness.axes import OPTIONS, GoldCounts
from logitbank.analysis.families.fairness.cube import Cube
from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.stats.bootstrap import bootstrap_means, cluster_numbers
from logitbank.analysis.stats.significance import mean_present


class Sample(NamedTuple):
    """Of c checkpoints and s option orders, the n prompts with one right answer."""

    values: Floats
    """(c, s, n), NaN where missing."""
    means: Floats
    """(c, s) over the prompts."""
    draws: Floats
    """(b, c) the mean over prompts and orders in every resample; the same sentences in all."""
    sentences: Codes
    """(c,) clusters that have a value."""

    @property
    def prompts(self) -> Codes:
        """(c,) prompts that have a value under any order."""
        count: Codes = (~np.isnan(self.values)).any(axis=1).sum(axis=1)
        return count


def samples(data: Cube, measures: Sequence[Floats], counts: GoldCounts) -> list[list[Sample]]:
    """A sample of each of some measures, (c, s, p), for every right answer: by answer, by measure.

    All measures of an answer are resampled by one matrix product.
    """
    return [
        _of_answer(
            [each[:, :, right] for each in measures], data.axes.clusters[right], counts[gold]
        )
        for gold, right in enumerate(data.gold == gold for gold in range(OPTIONS))
    ]


def _of_answer(values: Sequence[Floats], clusters: Codes, counts: Floats) -> list[Sample]:
    draws = np.split(bootstrap_means(np.concatenate(values), counts), len(values), axis=1)
    return [
        Sample(each, mean_present(each, axis=2), drawn, cluster_numbers(each, clusters))
        for each, drawn in zip(values, draws, strict=True)
    ]

"""What draws charts, made once: in a process of the tests, and the script of pages in a run."""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache, wraps
from pathlib import Path

from logitbank.analysis.charts import chart
from logitbank.analysis.charts.draw import Call
from logitbank.analysis.report import page, report
from tests.support.shared import shared

SAVE_CHARTS, LIBRARY = chart.save_charts, page.library


def drawn_once(change: Callable[[object, str, object], None] = setattr) -> None:
    """Draw in this process, and take the script of pages from the one that first needs it.

    A process for drawing takes 0.7 s of processor before its first chart, and the script 1.1 s.
    Studies write empty files for their charts on paper, each of which takes half a second.
    """
    change(chart, "draw", draw_here)
    change(chart, "save_charts", empty_charts)
    for module in (page, report):
        change(module, "library", shared_library)


def draw_here(calls: Sequence[Call]) -> list[bytes]:
    """The results of `charts.draw.draw`, without another process."""
    return [_drawn(json.dumps(call)) for call in calls]


@lru_cache(64)  # the last try of a width is the chart
def _drawn(call: str) -> bytes:
    import vl_convert

    name, arguments, options = json.loads(call)
    result: bytes | str = getattr(vl_convert, name)(*arguments, **options)
    return result if isinstance(result, bytes) else result.encode()


@wraps(SAVE_CHARTS)
def empty_charts(charts: Mapping[str, chart.Chart], folder: Path, **_: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in charts:
        for suffix in (*chart.OPTIONS, "txt"):
            (folder / f"{name}.{suffix}").touch()


def shared_library() -> Future[str]:
    future: Future[str] = Future()
    future.set_result(shared("vega", lambda: LIBRARY().result()))
    return future

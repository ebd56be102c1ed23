"""What a user waits for without a model: `--help`, analyses, reports, `info`, a finished run.

`python -m bench.offline WHAT ARGUMENT …` does one piece of work in a process that imports nothing
but the product, and prints its peak memory in MB.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from unittest.mock import patch

from bench.base import Base
from bench.figures import Figure

PROMPTS = 50


def fairness(tmp: Path, *, rounds: int = 5, base: Base | None = None) -> Iterator[Figure]:
    """Seconds of a process that makes every table, and its peak memory."""
    from bench.drawn import drawn_bank

    bank = drawn_bank(tmp / "drawn.zarr", tmp)
    name = "every fairness table, 154 checkpoints × 15,840 prompts"
    yield from _measured("fairness", name, [bank], 2.2, 500, rounds, base)


def large(tmp: Path, *, rounds: int = 3, base: Base | None = None) -> Iterator[Figure]:
    """As many checkpoints as Olmo 3 7B has, at storage level options."""
    from bench.drawn import MANY_STEPS, drawn_bank
    from bench.models import public_data, series

    bank = drawn_bank(tmp / "large.zarr", tmp, MANY_STEPS)
    size = f"{len(MANY_STEPS):,} checkpoints × 15,840 prompts"
    for work, name, most_s, most_mb in (
        ("fairness", "every fairness table", 12, 1500),
        ("show", "show of the prompts that change most", 30, 500),
        ("info", "info", 2, 500),
    ):
        yield from _measured(work, f"{name}, {size}", [bank], most_s, most_mb, rounds, base)
    suite, folder = tmp / "large", series(tmp, "toy", 1) / "step0"
    suite.mkdir(exist_ok=True)
    for step in MANY_STEPS:
        if not (link := suite / f"step{step}").exists():
            link.symlink_to(folder.absolute())
    arguments = [bank, suite, public_data().absolute()]
    _nothing(*map(str, arguments))  # remembers the tokenized prompts
    name = f"extract, nothing to do, {size}"
    yield from _measured("nothing", name, arguments, 2, 500, rounds, base)


def report(tmp: Path, *, rounds: int = 3, base: Base | None = None) -> Iterator[Figure]:
    """The same bank's report, and the size of its page."""
    from bench.drawn import drawn_bank

    bank, page = drawn_bank(tmp / "drawn.zarr", tmp), tmp / "report.html"
    name = "report, 154 checkpoints × 15,840 prompts"
    yield from _measured("report", name, [bank, page], 8, 2000, rounds, base)
    size = page.stat().st_size / 1e6
    yield Figure(f"{name}: the page", size, "MB", "≤ 6 MB", size <= 6)


def info(tmp: Path, *, rounds: int = 5, base: Base | None = None) -> Iterator[Figure]:
    from bench.drawn import small_deposits

    bank = small_deposits(tmp, deposits=5_000, prompts=10)
    yield from _measured("info", "info of 5,000 deposits", [bank], 1, 250, rounds, base)


def _measured(
    work: str,
    name: str,
    arguments: list[Path],
    most_s: float,
    most_mb: float,
    rounds: int,
    base: Base | None = None,
) -> Iterator[Figure]:
    """Seconds from the start of Python to its end, and the peak memory in MB.

    The code of `base` takes turns with this one.
    """
    command = [sys.executable, "-m", "bench.offline", work, *map(str, arguments)]
    rows = [in_turn(command, base, turn) for turn in range(rounds)]
    seconds, peaks = ([each[which] for each, *_ in rows] for which in (0, 1))
    before_s = before_mb = None
    if base is not None and (earlier := [each for _, each in rows if each is not None]):
        before_s, before_mb = median(s for s, _ in earlier), max(mb for _, mb in earlier)
    by = {"revision": "" if base is None else base.revision}
    took, peak = median(seconds), max(peaks)
    yield Figure(name, took, "s", f"≤ {most_s:g} s", took <= most_s, seconds, base=before_s, **by)
    name, met = f"{name}: peak memory", peak <= most_mb
    yield Figure(name, peak, "MB", f"≤ {most_mb:g} MB", met, peaks, base=before_mb, **by)


def in_turn(
    command: list[str], base: Base | None, turn: int
) -> tuple[tuple[float, float], tuple[float, float] | None]:
    """Seconds and output of a process of this code and one of `base`, in alternating order.

    None if the earlier code does not run the command, perhaps because it did not have it.
    """

    def run(code: Base | None) -> tuple[float, float]:
        env, folder = (None, None) if code is None else (code.environment(), code.folder)
        start = time.perf_counter()
        done = subprocess.run(
            *(command,), stdout=subprocess.PIPE, text=True, check=True, env=env, cwd=folder
        )
        return time.perf_counter() - start, float(done.stdout or 0)

    earlier = None
    if base is not None and turn % 2:
        earlier = _or_none(lambda: run(base))
    own = run(None)
    if base is not None and not turn % 2:
        earlier = _or_none(lambda: run(base))
    return own, earlier


def _or_none(run: Callable[[], tuple[float, float]]) -> tuple[float, float] | None:
    try:
        return run()
    except subprocess.CalledProcessError:
        return None


def _command(*arguments: object) -> list[str]:
    """A command line of logitbank; its output is discarded."""
    code = "import sys, os; from logitbank.cli.main import main; sys.stdout = open(os.devnull, 'w')"
    return [sys.executable, "-c", f"{code}; sys.exit(main())", *map(str, arguments)]


def _seconds(*command: object) -> float:
    start = time.perf_counter()
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    return time.perf_counter() - start


def _seconds_of(
    name: str, command: list[str], most_s: float, rounds: int, base: Base | None, detail: str
) -> Figure:
    """Seconds of a command of logitbank, also by `base`."""
    rows = [in_turn(command, base, turn) for turn in range(rounds)]
    seconds = [own for (own, _), _ in rows]
    earlier = [each[0] for _, each in rows if each is not None]
    took = median(seconds)
    return Figure(
        *(name, took, "s", f"≤ {most_s:g} s", took <= most_s, seconds, detail),
        base=median(earlier) if earlier else None,
        revision="" if base is None else base.revision,
    )


def command_help(_: Path, *, rounds: int = 9, base: Base | None = None) -> Iterator[Figure]:
    """Seconds of `logitbank --help`, with Python's own start in the detail."""
    command = _command("--help")
    subprocess.run(command, capture_output=True)
    python = median(_seconds(sys.executable, "-c", "pass") for _ in range(rounds))
    detail = f"Python alone {python:.3f} s"
    yield _seconds_of("`logitbank --help`", command, 0.5, rounds, base, detail)


def nothing_to_do(tmp: Path, *, rounds: int = 5, base: Base | None = None) -> Iterator[Figure]:
    """Seconds of the command, imports included, if all results are in the bank."""
    from bench.models import series

    prompts = tmp / "nurses.jsonl"
    rows = [
        {"id": f"p{n}", "text": f"Nurse {n} said that", "options": [" he", " she"]}
        for n in range(PROMPTS)
    ]
    prompts.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    command = _command(
        *("extract", tmp / "tiny.zarr"),
        *("--suite", series(tmp, "tiny", 154), "--prompts", prompts),
        *("--keep", "options", "--engine", "transformers"),
    )
    first = _seconds(*command)
    detail, name = f"all of them to do: {first:.0f} s", "extract of 154 checkpoints, nothing to do"
    yield _seconds_of(name, command, 1, rounds, base, detail)


def one_step_over_http(tmp: Path) -> Iterator[Figure]:
    """Requests to a server on this machine and bytes from it, into an empty cache."""
    from bench.drawn import small_deposits
    from logitbank.store import Bank
    from logitbank.store.share.push import push
    from tests.support.file_server import FileServer

    bank = small_deposits(tmp, deposits=1_000, prompts=PROMPTS, keep="full")
    push(bank, tmp / "www" / "bank")
    cache = patch.dict(os.environ, {"LOGITBANK_CACHE": str(tmp / f"cache-{time.time_ns()}")})
    with cache, FileServer(tmp / "www") as server:
        start = time.perf_counter()
        rows = Bank.open(f"{server.url}/bank", steps=3).scan("nurses", steps=3).collect()
        detail = f"{time.perf_counter() - start:.1f} s, on this machine"
        answers = server.log()
    assert len(rows) == 2 * PROMPTS
    name, requests = "one step of 1,000 deposits at a URL, nothing in the cache", len(answers)
    megabytes = sum(answer.bytes for answer in answers) / 1e6
    yield Figure(f"{name}: requests", requests, "", "≤ 10", requests <= 10, [], detail)
    yield Figure(f"{name}: sent", megabytes, "MB", "≤ 2 MB", megabytes <= 2)


def _fairness(bank: str) -> None:
    """What `logitbank analyze fairness` does before it draws."""
    from logitbank.analysis import fairness_metric
    from logitbank.analysis.frames.reader import Scores
    from logitbank.store import Bank

    tables = fairness_metric(Scores([Bank.open(bank)], ("winobias",))).tables()
    assert all(len(table) for name, table in tables.items() if name != "comparison")


def _report(bank: str, page: str) -> None:
    from logitbank.analysis.report.report import report

    report(Path(bank), Path(page))


def _info(bank: str) -> None:
    from logitbank.store import Bank

    assert len(Bank.open(bank).info())


def _show(bank: str) -> None:
    from logitbank import show

    assert len(show(bank, prompts="winobias").table)


def _nothing(bank: str, suite: str, data: str) -> None:
    from logitbank import extract
    from logitbank.engine.prompts.registry import prompt_set

    prompts = prompt_set("winobias", data=Path(data))  # without the set that its name adds
    done = extract(
        bank, suites=suite, prompts=prompts, model="pythia", keep="options", engine="transformers"
    )
    assert not done.rows


WORK: dict[str, Callable[..., None]] = {
    "fairness": _fairness,
    "report": _report,
    "info": _info,
    "show": _show,
    "nothing": _nothing,
}


def _peak_mb() -> float:
    """The kernel's high-water mark of this process; `getrusage` includes its parent's size."""
    status = Path("/proc/self/status").read_text()
    (kib,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return kib * 1024 / 1e6


if __name__ == "__main__":
    WORK[sys.argv[1]](*sys.argv[2:])
    print(_peak_mb())

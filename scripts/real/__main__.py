"""`make real`, in six parts. Run it again to resume: finished parts are skipped."""

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "real"
DATA = Path(os.environ.get("LOGITBANK_DATA", ROOT.parent / "shared" / "data"))
MODEL = "smollm2-135m-instruct-q4_1"
TITLE = (
    "SmolLM2-135M-Instruct, dequantised from 4 bits and fine-tuned here; samples of WinoBias, "
    "CrowS-Pairs and LAMBADA"
)
EXPECTED = """\
make real: about 10 minutes on two idle cores, 3 GB of disk and 4 GB of memory
  1 of 6  SmolLM2-135M-Instruct from 4 bits to safetensors   1 minute
  2 of 6  fine-tuning on text whose answers change           3 minutes
  3 of 6  nine checkpoints over 280 prompts, on vLLM         4 minutes
  4 of 6  analysis and report, without a model               half a minute
  5 of 6  a BERT of chemical reactions, fine-tuned           half a minute
  6 of 6  its nine checkpoints over 66 prompts, and analysis 1 minute"""


def main() -> int:
    if not (DATA / "winobias").is_dir():
        sys.exit(
            f"{DATA} has no winobias. Fix: set LOGITBANK_DATA to a folder with the public data."
        )
    os.environ.setdefault("TQDM_DISABLE", "1")  # the bars of transformers
    print(EXPECTED, flush=True)
    with part("1 of 6  conversion"):
        from scripts.real.weights import base_model

        base_model(FOLDER / "base")
    with part("2 of 6  fine-tuning"):
        tune()
    with part("3 of 6  extraction"):
        complete = run_extraction()
    if not complete:
        return 1
    with part("4 of 6  analysis"):
        report_findings()
    with part("5 of 6  masked model"):
        tune_masked()
    with part("6 of 6  masked extraction and analysis"):
        if not run_masked():
            return 1
    print(f"Report, to open in a browser: {FOLDER / 'report.html'}")
    return 0


@contextmanager
def part(name: str) -> Iterator[None]:
    """Print the wall time and the processor time of a part, with its child processes."""
    wall, busy = time.monotonic(), processor_seconds()
    print(f"\n{name} …", flush=True)
    yield
    wall, busy = time.monotonic() - wall, processor_seconds() - busy
    print(f"{name}: {wall:.0f} s, {busy:.0f} s of processors", flush=True)


def processor_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def tune() -> None:
    from transformers.utils import logging

    from scripts.real.tuning import series

    logging.disable_progress_bar()
    series(FOLDER / "base", FOLDER / "checkpoints", print_loss)


def tune_masked() -> None:
    from transformers.utils import logging

    from scripts.real.masked import masked_base, masked_series

    logging.disable_progress_bar()
    masked_base("bert", FOLDER / "masked" / "base")
    masked_series(FOLDER / "masked" / "base", FOLDER / "masked" / "checkpoints", print_loss)


def print_loss(update: int, loss: float) -> None:
    from scripts.real.text import EVERY, UPDATES

    if update % EVERY == 0:
        print(f"  update {update:2} of {UPDATES}, loss {loss:.2f} nats", flush=True)


def run_extraction() -> bool:
    """Whether all checkpoints were evaluated."""
    from logitbank.store.change.about import describe
    from scripts.real.samples import samples

    bank = FOLDER / "real.zarr"
    complete = extracted(
        bank,
        suites=str(FOLDER / "checkpoints"),
        prompts=samples(DATA),
        model=MODEL,
        engine="vllm",
        keep="topk:64",
    )
    describe(bank, title=TITLE)
    return complete


def run_masked() -> bool:
    """Whether all checkpoints were evaluated: masks on vLLM, next sentences with transformers."""
    from scripts.real.findings import masked_findings
    from scripts.real.reactions import halogens, products

    checkpoints = str(FOLDER / "masked" / "checkpoints")
    masks, pairs = FOLDER / "masks.zarr", FOLDER / "pairs.zarr"
    complete = extracted(
        masks, suites=checkpoints, prompts=halogens(), model="rxnfp-bert", engine="vllm"
    ) and extracted(
        pairs, suites=checkpoints, prompts=products(), model="rxnfp-bert", engine="transformers"
    )
    if complete:
        for line in masked_findings(masks, pairs):
            print(line)
    return complete


def extracted(bank: Path, **request: Any) -> bool:
    """Whether all checkpoints of a request were evaluated."""
    from logitbank.cli.screen.extract import ExtractProgress, print_summary
    from logitbank.engine.extract import extract

    with ExtractProgress() as progress:
        summary = extract(bank, on_event=progress, **request)
    print_summary(summary, bank=str(bank), dry_run=False)
    return summary.complete


def report_findings() -> None:
    from logitbank.analysis.report.report import report
    from scripts.real.findings import findings

    bank = FOLDER / "real.zarr"
    report(bank, FOLDER / "report.html")
    for line in findings(bank):
        print(line)


if __name__ == "__main__":
    sys.exit(main())

"""Take results of other tools into a bank."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from logitbank.analysis.imported.inspect_ai import read_log
from logitbank.analysis.imported.inspect_archive import is_archive
from logitbank.analysis.imported.items import Evaluation, json_lines
from logitbank.analysis.imported.llama_cpp import KldFile, is_kld, read_head, write_rows
from logitbank.analysis.imported.lm_eval import is_sample, read_samples
from logitbank.analysis.imported.olmes import is_prediction, read_predictions
from logitbank.analysis.imported.write import write_evaluation
from logitbank.errors import UsageError
from logitbank.store import Bank, CheckpointId, Deposit, Keep
from logitbank.store.files import objects
from logitbank.store.steps import run_seed
from logitbank.wording import KEPT_OF_LOGITS, counted


class Deposited(NamedTuple):
    """What became of one file."""

    source: Path
    prompts: str
    """The prompt set that its items are in."""
    deposit: Deposit

    left_out: int
    """Examples of which the file has no log-probability."""

    def __str__(self) -> str:
        queries = counted(self.deposit.layout.queries, "query", "queries")
        less = f", {self.left_out:,} without log-probabilities left out" if self.left_out else ""
        made = f"{queries} of {self.deposit.checkpoint}, prompts {self.prompts}"
        return f"{self.source.name}: {made}{less}"


def deposit(
    bank: str | Path,
    sources: str | Path | Sequence[str | Path],
    *,
    model: str | None = None,
    run: str = "main",
    step: int | None = None,
    prompts: str | None = None,
    keep: str = "full",
    chunks: int | None = None,
    bos: int | None = None,
) -> list[Deposited]:
    """Take results of other tools into a bank, which is made if it is not there.

    Files are told by what is in them: samples of lm-evaluation-harness
    (`samples_<task>_<time>.jsonl`), predictions of OLMES (`<task>-predictions.jsonl`, with the
    requests beside them), logs of inspect_ai (`.eval`, or as JSON), and base files of llama.cpp's
    perplexity tool (`.kld`). What the first three hold of a continuation is the sum of its tokens'
    log-probabilities, and it is kept as that: the deposit's queries are of the head `continuation`,
    at the keep level `options`. The last has whole rows. No code that is in a file is run.

    Parameters
    ----------
    bank
        Folder of the bank.
    sources
        Files.
    model, step
        The checkpoint; where None, as the file, or one that the tool wrote beside it, names them. A
        file that names no step is of a release.
    run
        The run of the checkpoint.
    prompts
        Name of the prompt set, of one source; the task's name if None.
    keep
        Of rows: `full`, `topk:K` or `options`.
    chunks
        Of a `.kld` file, only the first so many.
    bos
        Of a `.kld` file: the begin-of-text token that stood in place of each chunk's first, which
        the file does not tell; llama.cpp puts it there where a model has one.

    Returns
    -------
    One for each file, in order.

    Raises
    ------
    UsageError
        A file is none of these, or is damaged: names file and line. Or nothing names the model.
        Before anything is written.
    BankError
        Other scores of the same checkpoint and items are there.
    """
    paths = [Path(p) for p in ([sources] if isinstance(sources, str | Path) else sources)]
    if not paths:
        raise UsageError("no file was given; name one or more")
    if prompts is not None and len(paths) > 1:
        raise UsageError(
            f"{len(paths)} files cannot all be the prompt set {prompts!r}; give them one by one, or"
            " leave the name out: each is called as its task"
        )
    level = Keep.parse(keep, accepted=KEPT_OF_LOGITS)
    found = [read(path, chunks=chunks) for path in paths]
    wanted = [
        _checkpoint(path, each, model=model, run=run, step=step)
        for path, each in zip(paths, found, strict=True)
    ]
    root = Path(bank)
    into = Bank.open(root) if objects.holds_something(root) else Bank.create(root)
    made = []
    for path, each, checkpoint in zip(paths, found, wanted, strict=True):
        if isinstance(each, KldFile):
            name = prompts or path.stem
            done = write_rows(into, each, checkpoint=checkpoint, prompts=name, keep=level, bos=bos)
            made.append(Deposited(path, name, done, 0))
        else:
            name = prompts or each.task
            done = write_evaluation(into, each, checkpoint=checkpoint, prompts=name)
            made.append(Deposited(path, name, done, each.left_out))
    return made


def read(path: Path, *, chunks: int | None = None) -> Evaluation | KldFile:
    """What a file says, whichever tool wrote it.

    Raises
    ------
    UsageError
        It is of none that is known, or damaged.
    """
    if not path.is_file():
        raise UsageError(f"there is no file of results {path}; check the path")
    if is_kld(path):
        return read_head(path, chunks=chunks)
    if path.suffix in (".eval", ".json") or is_archive(path):
        return read_log(path)
    for _, line in json_lines(path, "file of results"):
        if is_sample(line):
            return read_samples(path)
        if is_prediction(line):
            return read_predictions(path)
        break
    raise UsageError(
        f"{path} is no file of results that is known; known are samples_….jsonl of"
        " lm-evaluation-harness (--log_samples), …-predictions.jsonl of OLMES, .eval and .json logs"
        " of inspect_ai, and .kld files of llama.cpp"
    )


def _checkpoint(
    path: Path, found: Evaluation | KldFile, *, model: str | None, run: str, step: int | None
) -> CheckpointId:
    named, at = (None, None) if isinstance(found, KldFile) else (found.model, found.step)
    if not (name := model or named):
        raise UsageError(
            f"no model is named in {path} or beside it; name it with --model, and its training"
            " step with --step"
        )
    return CheckpointId(name, run, at if step is None else step, run_seed(run))

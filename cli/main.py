"""The command line. Each command parses, calls one library function, and prints."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NoReturn

import typer

from logitbank.cli.analyze import evaluations, unqover
from logitbank.cli.commands import banks, debias, query, report, sharing
from logitbank.cli.commands import fetch as fetching
from logitbank.cli.commands import show as show_prompt
from logitbank.cli.complete import prompt_set_names, suite_names
from logitbank.cli.layout import App, Command, Group, Sections
from logitbank.cli.options import BankPath, Banks, Form, Format, Partial, StoredDtype


class Root(Group):
    sections: ClassVar[Sections] = {
        "Try it": ("demo",),
        "Fill a bank": ("extract", "fetch", "suites", "prompts"),
        "Ask it": ("info", "analyze", "report", "show", "query", "compare", "debias"),
        "Share it": ("describe", "push", "pull"),
        "Look after it": ("verify", "merge", "shrink", "rescore"),
    }


app = App(
    cls=Root,
    help="Run every checkpoint over every prompt once, keep the logits, ask every question later.",
)
prompts_app = App(help="Show and check prompt sets.")
analyze_app = App(help="Compute a family of metrics from a bank.")
app.add_typer(prompts_app, name="prompts")
app.add_typer(analyze_app, name="analyze")
app.add_typer(debias.app, name="debias")


class Engine(StrEnum):
    auto = "auto"
    vllm = "vllm"
    transformers = "transformers"


class ComputeDtype(StrEnum):
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class Unit(StrEnum):
    prompt = "prompt"
    prompt_order = "prompt_order"
    seed = "seed"


class Ties(StrEnum):
    competition = "competition"
    midrank = "midrank"


class Score(StrEnum):
    reference = "reference"
    mean_prob = "mean_prob"
    sum_logprob = "sum_logprob"
    mean_logprob = "mean_logprob"
    geometric = "geometric"


Orders = Annotated[str, typer.Option(help="Option orders of WinoBias: a number of seeds, or all.")]
Splits = Annotated[str, typer.Option(help="Parts of WinoBias, separated by commas.")]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder with public data; else LOGITBANK_DATA, else downloaded."),
]
Instances = Annotated[
    str, typer.Option(help="Instances of UnQover: a sample of at most this many, or all.")
]
FirstToken = Annotated[
    bool, typer.Option("--first-token", help="Score the first token of longer options.")
]


class Extract(Command):
    sections: ClassVar[Sections] = {
        "What to run": ("suite", "prompts", "steps", "model", "language", "adapter_from"),
        "Known prompt sets": ("orders", "splits", "instances", "data"),
        "What is kept": ("keep", "dtype", "title", "licence", "citation"),
        "How it is run": (
            *("engine", "compute_dtype", "deterministic", "canary_every", "first_token"),
            *("legacy_weights", "trust_remote_code"),
        ),
        "Machines": ("workers", "shard", "ray", "tensor_parallel_size", "disk_budget"),
        "Before it is run": ("dry_run", "sample"),
    }


@app.command(cls=Extract)
def extract(
    bank: BankPath,
    suite: Annotated[
        str,
        typer.Option(
            help="Known suite, owner/repo, or folder of checkpoints.", autocompletion=suite_names
        ),
    ],
    prompts: Annotated[
        list[str],
        typer.Option(
            help="A known set, such as winobias, or a JSONL, CSV, Parquet file.",
            autocompletion=prompt_set_names,
        ),
    ],
    steps: Annotated[
        str, typer.Option(help="all, log, first:last:stride, a list, or release.")
    ] = "all",
    orders: Orders = "5",
    splits: Splits = "dev,test",
    data: Data = None,
    first_token: FirstToken = False,
    instances: Instances = "10000",
    language: Annotated[
        str, typer.Option(help="Language adapter of the prompts, for models that have such.")
    ] = "",
    adapter_from: Annotated[
        str | None, typer.Option(help="Take that adapter from this folder or owner/repo.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Name to store the model under.")] = None,
    engine: Annotated[Engine, typer.Option(help="auto takes vLLM if installed.")] = Engine.auto,
    keep: Annotated[str, typer.Option(help="full, topk:K or options.")] = "full",
    dtype: Annotated[
        StoredDtype, typer.Option(help="Of stored log-probabilities; ranks are made before.")
    ] = StoredDtype.float16,
    compute_dtype: Annotated[
        ComputeDtype, typer.Option(help="Of the model's body; its head is float32.")
    ] = ComputeDtype.float32,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="The same bits in any batch; slower.")
    ] = False,
    canary_every: Annotated[
        int, typer.Option(min=0, help="Check a sequence independently every so many checkpoints.")
    ] = 50,
    legacy_weights: Annotated[
        bool, typer.Option("--legacy-weights", help="Accept .bin weights; no code in them is run.")
    ] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that ships with the model.")
    ] = False,
    title: Annotated[str, typer.Option(help="Of a new bank.")] = "",
    licence: Annotated[str, typer.Option(help="Of a new bank's data, such as CC-BY-4.0.")] = "",
    citation: Annotated[str, typer.Option(help="How to cite a new bank.")] = "",
    workers: Annotated[
        str | None,
        typer.Option(help="Engines side by side, or auto: one for each GPU. Else 1; on Ray auto."),
    ] = None,
    shard: Annotated[
        str | None, typer.Option(help="i/n: this run's part; else that of a SLURM array.")
    ] = None,
    ray: Annotated[
        str | None, typer.Option(help="Workers run on this Ray cluster: auto, or HOST:PORT.")
    ] = None,
    tensor_parallel_size: Annotated[
        int, typer.Option(min=1, help="GPUs for one model; only 1 is possible yet.")
    ] = 1,
    disk_budget: Annotated[
        str | None, typer.Option(help="Downloaded weights take at most this, such as 100GB.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    sample: Annotated[
        bool, typer.Option("--sample", help="With --dry-run: measure how long it will take.")
    ] = False,
) -> None:
    """Run checkpoints over prompts and deposit the logits; what the bank has is not run again.

    Exit code 3 says that it was interrupted (Ctrl-C, SIGTERM, a job's time over): the same command
    goes on. 1 says that a checkpoint failed.
    """
    from logitbank.cli.screen.tables import ExtractProgress, print_summary
    from logitbank.engine.extract import extract as run_extract

    with ExtractProgress() as progress:
        summary = run_extract(
            bank,
            suite=suite,
            prompts=prompts,
            steps=steps,
            orders=_count_or_all(orders, "--orders"),
            splits=splits.split(","),
            data=data,
            first_token=first_token,
            instances=_count_or_all(instances, "--instances"),
            language=language,
            adapter_from=adapter_from,
            model=model,
            engine=engine.value,
            keep=keep,
            dtype=dtype.value,
            compute_dtype=compute_dtype.value,
            deterministic=deterministic,
            canary_every=canary_every,
            legacy_weights=legacy_weights,
            trust_remote_code=trust_remote_code,
            title=title,
            licence=licence,
            citation=citation,
            workers=_workers(workers),
            shard=shard,
            ray=ray,
            tensor_parallel_size=tensor_parallel_size,
            disk_budget=disk_budget,
            dry_run=dry_run,
            sample=sample,
            on_event=progress,
        )
    print_summary(summary, bank=str(bank), dry_run=dry_run)
    raise typer.Exit(summary.exit_code)


@app.command()
def verify(
    bank: BankPath,
    repair: Annotated[
        bool, typer.Option("--repair", help="Drop damaged blocks, so that extract fills them.")
    ] = False,
) -> None:
    """Recompute the digests of a bank or view; name what is damaged or missing, and where."""
    from logitbank.cli.commands.care import verify_bank

    verify_bank(bank, mend=repair)


app.command()(fetching.fetch)
app.command()(banks.info)
app.command()(report.report)
app.command()(query.query)
app.command()(show_prompt.show)
app.command()(banks.describe)
app.command()(banks.merge)
app.command()(banks.shrink)
app.command()(banks.rescore)
app.command()(banks.compare)
app.command()(sharing.push)
app.command()(sharing.pull)


@app.command()
def suites(form: Format = Form.table) -> None:
    """List the checkpoint suites known by name."""
    import polars as pl

    from logitbank.cli.screen.tables import print_frame
    from logitbank.engine.suites.suites import known_suites

    columns = ("name", "repo", "description")
    rows = [tuple(getattr(s, c) for c in columns) for s in known_suites()]
    print_frame(pl.DataFrame(rows, schema=columns, orient="row"), form)


@prompts_app.command("show")
def prompts_show(
    prompts: Annotated[
        str,
        typer.Argument(
            help="A known set, such as winobias, or a prompt file.", autocompletion=prompt_set_names
        ),
    ],
    limit: Annotated[int, typer.Option(min=1, help="Prompts to show.")] = 3,
    orders: Orders = "5",
    splits: Splits = "dev,test",
    data: Data = None,
    instances: Instances = "10000",
) -> None:
    """Print the first prompts of a set exactly as they would be scored."""
    from logitbank.cli.screen.tables import print_verbatim
    from logitbank.engine.prompts.known.registry import prompt_set
    from logitbank.engine.prompts.shown import describe

    found = prompt_set(
        prompts,
        data=data,
        orders=_count_or_all(orders, "--orders"),
        splits=splits.split(","),
        instances=_count_or_all(instances, "--instances"),
    )
    print_verbatim(describe(found, limit=limit))


@prompts_app.command("check")
def prompts_check(
    prompts: Annotated[
        str,
        typer.Argument(
            help="A known set, such as winobias, or a prompt file.", autocompletion=prompt_set_names
        ),
    ],
    tokenizer: Annotated[
        Path | None, typer.Option(help="Checkpoint folder whose tokenizer to check with.")
    ] = None,
    orders: Orders = "5",
    splits: Splits = "dev,test",
    data: Data = None,
    first_token: FirstToken = False,
    instances: Instances = "10000",
) -> None:
    """Say what stops a prompt set, and what its author may not have meant."""
    from logitbank.cli.screen.tables import print_lines
    from logitbank.engine.prompts.known.registry import prompt_set
    from logitbank.engine.prompts.shown import check

    found = prompt_set(
        prompts,
        data=data,
        orders=_count_or_all(orders, "--orders"),
        splits=splits.split(","),
        first_token=first_token,
        instances=_count_or_all(instances, "--instances"),
    )
    lines, failed = check(found, tokenizer)
    print_lines(lines)
    raise typer.Exit(1 if failed else 0)


@analyze_app.command("fairness")
def analyze_fairness(
    banks: Banks,
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables, figures and the report.")
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(help="Prompt set; else winobias, or the only one with its columns."),
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only these models.")] = None,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(help="Two models to compare on neutral prompts.")
    ] = None,
    change: Annotated[
        tuple[int, int] | None, typer.Option(help="Print the fairness change between two steps.")
    ] = None,
    vocab_limit: Annotated[
        bool, typer.Option("--vocab-limit", help="Rank among the tokenizer's entries only.")
    ] = False,
    ties: Annotated[Ties, typer.Option(help="How equal logits are ranked.")] = Ties.competition,
    unit: Annotated[Unit, typer.Option(help="Observation of the tests.")] = Unit.prompt,
    bootstrap: Annotated[int, typer.Option(min=0, help="Resamples of the sentences.")] = 1000,
    table: Annotated[str | None, typer.Option(help="Print this table instead of all.")] = None,
    form: Format = Form.table,
) -> None:
    """Average Rank, accuracy, JSD by parts, the gap, and their tests, by checkpoint."""
    from logitbank.analysis.results.studies import fairness_study
    from logitbank.cli.screen.tables import print_study

    study = fairness_study(
        banks,
        prompts=prompts,
        models=model,
        out=out,
        vocab_limit=vocab_limit,
        ties=ties.value,
        unit=unit.value,
        bootstrap=bootstrap,
        compare=compare,
        change=change,
    )
    print_study(study, table=table, form=form)


@analyze_app.command("fluctuation")
def analyze_fluctuation(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Banks, and score tables in the published format (.csv, .parquet).",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables, figures and the report.")
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(help="Prompt set; else professions, or the only one with its columns."),
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only these models.")] = None,
    plateau: Annotated[
        list[int] | None,
        typer.Option(
            help="Step from which on to measure; several give results side by side. "
            "Else half of the last step."
        ),
    ] = None,
    frequencies: Annotated[
        Path | None,
        typer.Option(
            help="Table with occupation, case, year, frequency; or occupation, case, total."
        ),
    ] = None,
    corpus_sizes: Annotated[
        Path | None, typer.Option(help="Table with year, total_words, for yearly frequencies.")
    ] = None,
    profession: Annotated[
        list[str] | None, typer.Option(help="Show the trajectories of these professions.")
    ] = None,
    save_scores: Annotated[
        Path | None, typer.Option(help="Write the scores in the published format.")
    ] = None,
    partial: Partial = False,
    table: Annotated[str | None, typer.Option(help="Print this table instead of all.")] = None,
    form: Format = Form.table,
) -> None:
    """Pronoun ratios of masked models, their variation over a plateau, and correlations."""
    from logitbank.analysis.results.studies import fluctuation_study
    from logitbank.cli.screen.tables import print_study

    study = fluctuation_study(
        sources,
        prompts=prompts,
        models=model,
        out=out,
        plateaus=plateau or None,
        frequencies=frequencies,
        corpus_sizes=corpus_sizes,
        professions=profession or None,
        save_scores=save_scores,
        partial=partial,
    )
    print_study(study, table=table, form=form)


@analyze_app.command("stereoset")
def analyze_stereoset(
    banks: Annotated[
        list[Path] | None, typer.Argument(help="Banks, if any.", show_default=False)
    ] = None,
    predictions: Annotated[
        list[str] | None,
        typer.Option(help="Prediction file of a model named like it, or NAME=PATH; with --gold."),
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(help="StereoSet's file with the labels, such as dev.json.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables, figures and the report.")
    ] = None,
    prompts: Annotated[
        list[str] | None, typer.Option(help="Only these prompt sets of banks.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only these models of banks.")] = None,
    step: Annotated[
        list[str] | None, typer.Option(help="Only these steps of banks; a number, or release.")
    ] = None,
    score: Annotated[
        list[Score], typer.Option(help="How pieces become a score; several side by side.")
    ] = [Score.reference],  # noqa: B006
    bootstrap: Annotated[int, typer.Option(min=0, help="Resamples of the target terms.")] = 1000,
    save_predictions: Annotated[
        Path | None,
        typer.Option(help="Write the scores of banks as prediction files: a .json, or a folder."),
    ] = None,
    table: Annotated[str | None, typer.Option(help="Print this table instead of all.")] = None,
    form: Format = Form.table,
) -> None:
    """StereoSet's lms, ss and iCAT of banks and of prediction files, by domain and term."""
    from logitbank.analysis.families.stereoset.study import stereoset_study
    from logitbank.cli.screen.tables import print_study

    study = stereoset_study(
        banks or (),
        predictions=predictions or (),
        gold=gold,
        prompts=prompts or None,
        models=model or None,
        steps=step or None,
        out=out,
        score=[rule.value for rule in score],
        bootstrap=bootstrap,
        save_predictions=save_predictions,
    )
    print_study(study, table=table, form=form)


analyze_app.command("lambada")(evaluations.analyze_lambada)
analyze_app.command("stereotype")(evaluations.analyze_stereotype)
analyze_app.command("crows-pairs")(evaluations.analyze_crows_pairs)
analyze_app.command("tradeoff")(evaluations.analyze_tradeoff)
analyze_app.command("unqover")(unqover.analyze_unqover)


@app.command()
def demo(
    out: Annotated[Path, typer.Argument(help="Folder to work in.")] = Path("demo"),
    engine: Annotated[Engine, typer.Option(help="auto takes vLLM if installed.")] = Engine.auto,
) -> None:
    """Train a tiny model series whose bias changes at a known step, bank it, and report."""
    from logitbank.cli.commands.demo import demo as run_demo

    raise typer.Exit(run_demo(out, engine=engine.value))


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from logitbank.version import __version__

        typer.echo(__version__)
        raise typer.Exit


def _count_or_all(text: str, option: str) -> int | Literal["all"]:
    from logitbank.errors import UsageError

    if text == "all":
        return "all"
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise UsageError(f"{option} {text!r} is neither a positive number nor all")


def _workers(text: str | None) -> int | Literal["auto"] | None:
    from logitbank.errors import UsageError

    if text is None:
        return None
    if text == "auto":
        return "auto"
    if text.isdecimal():
        return int(text)
    raise UsageError(f"--workers {text!r} is neither a number nor auto")


def main() -> None:
    """Entry point: as `run`, but what was interrupted ends at once.

    Python takes all of its modules apart at its end. After an extraction it has transformers among
    them, which took 24 s where other work wanted both cores, long after all was said and written.
    """
    from logitbank.errors import INTERRUPTED

    try:
        run()
    except SystemExit as end:
        if end.code != INTERRUPTED:
            raise
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)


def run() -> None:
    """Do what the arguments say: expected failures print one line and end with their exit code."""
    from logitbank.cli.plain import encode_anything
    from logitbank.errors import INTERRUPTED, LogitbankError

    encode_anything()
    try:
        # Standalone, Typer draws a box around its errors and is silent about Ctrl-C.
        code = app(standalone_mode=False, prog_name="logitbank")
        sys.stdout.flush()
    except LogitbankError as error:
        _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        _refuse(error)
    except BrokenPipeError:  # whoever reads the output has enough of it, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}; check the path, its rights and the disk", 1)
    except Exception as error:
        # What cannot be read while a query runs comes from Polars; it is imported by then.
        if not type(error).__module__.startswith("polars."):
            raise
        first = (str(error).splitlines() or [type(error).__name__])[0]
        _fail(f"a table could not be read ({first}); run `logitbank verify` on the bank", 1)
    if code == _KEYBOARD_INTERRUPT:
        _fail("interrupted; the same command goes on from there", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


_KEYBOARD_INTERRUPT = 130
"""What Typer makes of KeyboardInterrupt."""


def _refuse(error: typer.TyperException) -> NoReturn:
    """End a call that does not parse, naming the help of the command that it was for."""
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
        print(error.format_message(), file=sys.stderr)
        sys.exit(2)
    context = getattr(error, "ctx", None)  # absent where an option lacks a value
    command = "logitbank" if context is None else context.command_path
    if (
        near := getattr(error, "possibilities", None)
    ) is not None:  # of an option that is not there
        message = (
            f"{error.message}; did you mean {' or '.join(sorted(near))}?" if near else error.message
        )
    else:
        message = error.format_message().strip().replace(": Value error, ", ": ")
        message = message.replace(". Did you mean", "; did you mean")
    _fail(f"{message.rstrip('.')}{'' if message.endswith('?') else ';'} see `{command} --help`", 2)


def _fail(message: str, code: int) -> NoReturn:
    from logitbank.cli.plain import say_error

    say_error(f"logitbank: {message}")
    sys.exit(code)

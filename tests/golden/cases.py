"""The calls of `logitbank` whose words and tables are kept, by group, and what each is about."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.golden import banks
from tests.golden.banks import Make


@dataclass(frozen=True)
class Group:
    """Calls that work in one folder, one after the other."""

    made: Sequence[Make]
    calls: Sequence[str]
    """Arguments, as a shell splits them."""


GROUPS = {
    "fairness": Group(
        (banks.demo, banks.families, banks.ties),
        (
            "analyze fairness toy.zarr --prompts toy-winobias --bootstrap 100",
            "analyze fairness families.zarr --bootstrap 100",
            "fairness(['families.zarr', 'ties.zarr'], models=['toy', 'other'], bootstrap=50)",
            "fairness('ties.zarr', bootstrap=20, models=['toy'])",
            "analyze fairness families.zarr --bootstrap 20 --table gap",
            "analyze fairness families.zarr --bootstrap 20 --table gap --format csv",
            "analyze fairness families.zarr --bootstrap 20 --table gap --format latex",
            "analyze fairness families.zarr --bootstrap 20 --table gap --format json",
            "analyze fairness families.zarr --table nothing",
            "analyze fairness families.zarr --prompts lambada",
            "analyze fairness nothing.zarr",
        ),
    ),
    "fluctuation": Group(
        (banks.demo, banks.fluctuation, banks.families),
        (
            "analyze fluctuation toy.zarr --prompts toy-professions",
            "analyze fluctuation scores.csv --frequencies totals.csv",
            "analyze fluctuation scores.csv --plateaus 1 --plateaus 3 --professions nurse",
            "analyze fluctuation scores.csv toy.zarr --model bert --model toy-bert",
            "analyze fluctuation scores.csv --plateaus 99",
            "analyze fluctuation families.zarr",
        ),
    ),
    "stereoset": Group(
        (banks.stereoset, banks.families),
        (
            "analyze stereoset stereoset.zarr",
            "analyze stereoset stereoset.zarr --score reference --score sum_logprob"
            " --score mean_logprob --steps 8,release",
            "analyze stereoset --predictions published=published.json --gold gold.json",
            "analyze stereoset stereoset.zarr --prompts stereoset-intra",
            "analyze stereoset --predictions published.json",
            "analyze stereoset families.zarr",
        ),
    ),
    "gest": Group(
        (banks.gest, banks.families),
        (
            "analyze gest gest.zarr",
            "analyze gest --predictions released_template-0.txt"
            " --predictions released_template-1.txt --gold gest/gest.csv",
            "analyze gest gest.zarr --table rates",
            "analyze gest families.zarr",
        ),
    ),
    "unqover": Group(
        (banks.unqover, banks.families),
        (
            "analyze unqover unqover.zarr",
            "unqover('unqover.zarr', prompts=['unqover-gender'], he_she=True, topk=5)",
            "analyze unqover families.zarr",
        ),
    ),
    "shares": Group(
        (banks.families, banks.result_files, banks.ties, banks.levels),
        (
            "analyze stereotype families.zarr",
            "analyze stereotype ties.zarr",
            "analyze lambada ties.zarr --table ties",
            "analyze lambada families.zarr",
            "analyze lambada ties.zarr",
            "analyze lambada ties.zarr --model toy --format json",
            "analyze pairs families.zarr",
            "analyze pairs ties.zarr",
            "analyze tradeoff families.zarr",
            "tradeoff('families.zarr', max_accuracy_loss=0.1, pair=(32, 128))",
            "analyze tradeoff families.zarr --performance lambada",
            "analyze tradeoff ties.zarr --model toy",
            "analyze options families.zarr --prompts winobias",
            "analyze options ties.zarr --prompts stereotype-accuracy",
            "analyze options ties.zarr --prompts lambada --score token",
            "analyze options contexts.zarr --prompts wörter",
            "analyze options hidden.zarr --prompts sätze/next",
            "analyze options families.zarr",
        ),
    ),
    "debias": Group(
        (banks.debias,),
        (
            "debias_train('debias.zarr', prompts='unqover-gender', out='f.safetensors',"
            " training=Training(regularisation=0.1), k=6)",
            "debias_train('debias.zarr', prompts='unqover-gender', out='g.safetensors',"
            " preset='bert', split=None)",
            "debias_compare('debias.zarr', ['f.safetensors'])",
            "debias train debias.zarr --regularisation 0.1 --out f.safetensors",
            "debias apply debias.zarr --filter f.safetensors --out filtered.zarr",
            "analyze stereoset filtered.zarr",
            "analyze unqover filtered.zarr",
        ),
    ),
    "report": Group(
        (banks.families, banks.debias),
        (
            "report families.zarr --bootstrap 20",
            "report debias.zarr --bootstrap 20 --out page.html",
        ),
    ),
    "banks": Group(
        (banks.demo, banks.ties, banks.levels, banks.two_banks),
        (
            "info toy.zarr",
            "info a.zarr --provenance",
            "info ties.zarr",
            "info ties.zarr --format csv",
            "info contexts.zarr --format json",
            "info hidden.zarr",
            "info hidden.zarr --provenance",
            "info nothing.zarr",
            "compare a.zarr b.zarr",
            "compare a.zarr b.zarr --steps 8",
            "compare a.zarr a.zarr --table logits --format csv",
            "compare a.zarr contexts.zarr",
            "verify ties.zarr",
            "verify hidden.zarr",
            "describe a.zarr --title 'All of it' --license CC-BY-4.0 --citation 'Nobody, 2026'",
            "describe a.zarr",
            "merge both.zarr a.zarr hidden.zarr",
            "merge both.zarr a.zarr",
            "merge both.zarr b.zarr",
            "shrink b.zarr small.zarr --keep topk:3 --dtype float16",
            "shrink small.zarr large.zarr --keep full",
            "info small.zarr",
            "push a.zarr shared.zarr",
            "push a.zarr shared.zarr",
        ),
    ),
    "verify": Group(
        (banks.damaged,),
        (
            "verify damaged.zarr",
            "analyze options damaged.zarr",
            "verify damaged.zarr --repair",
            "verify damaged.zarr",
        ),
    ),
    "show": Group(
        (banks.demo, banks.families, banks.levels, banks.two_banks),
        (
            "show toy.zarr --prompts toy-winobias",
            "show toy.zarr --prompts toy-winobias --prompt demo-pro-43-referred --order 2",
            "show toy.zarr --prompts toy-professions --steps 0,400 --top 3",
            "show toy.zarr --prompts toy-professions --model toy-bert --run seed1 --top 1",
            "show families.zarr --prompts winobias --prompt p3 --format csv",
            "show families.zarr --prompts winobias --format json --steps 0,128",
            "show families.zarr",
            "show families.zarr --prompts winobias --prompt nothing",
            "show a.zarr --prompts parity --prompt p1 --top-tokens 3",
            "show hidden.zarr --prompts wörter --prompt p1 --top-tokens 2",
        ),
    ),
    "query": Group(
        (banks.families, banks.levels),
        (
            "query families.zarr 'SELECT model, step, count(*) AS rows, sum(logprob) AS logprob"
            " FROM scores GROUP BY model, step ORDER BY step'",
            "query families.zarr 'SELECT * FROM checkpoints ORDER BY ALL' --format csv",
            "query contexts.zarr 'SELECT * FROM scores ORDER BY ALL' --format csv",
            "query hidden.zarr 'SELECT * FROM scores ORDER BY ALL' --format csv",
            "query hidden.zarr 'SELECT * FROM prompts ORDER BY ALL' --format json",
            "query hidden.zarr 'SELECT * FROM options ORDER BY ALL' --out options.csv",
            "query families.zarr 'SELECT nothing FROM scores'",
            "query families.zarr 'DROP TABLE scores'",
        ),
    ),
    "extract": Group(
        (banks.checkpoints,),
        (
            "suites",
            "prompts show jobs.jsonl",
            "prompts show jobs.jsonl --top 1",
            "prompts check jobs.jsonl --tokenizer series/step0",
            "prompts check glued.jsonl --tokenizer series/step0",
            "prompts check nothing.jsonl",
            "extract bank.zarr --suite series --prompts jobs.jsonl --engine transformers --dry-run",
            "extract bank.zarr --suite series --prompts jobs.jsonl --engine transformers --dry-run"
            " --steps 0:2000:1000 --keep topk:5 --shard 1/2",
            "extract bank.zarr --suite series --prompts jobs.jsonl --steps 7 --dry-run",
            "extract bank.zarr --suite nothing --prompts jobs.jsonl --dry-run",
            "extract bank.zarr --suite series --prompts glued.jsonl --keep some --dry-run",
        ),
    ),
}

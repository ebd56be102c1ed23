"""The prompts of the study of natural ungrokking, and what becomes of the rule in each model.

`natural_ungrokking.py prompts FILE` writes the prompts. `natural_ungrokking.py analyze BANK FOLDER`
writes tables, charts and a page, and prints one line for each model.
"""

import json
import sys
from pathlib import Path

import polars as pl

from logitbank.analysis import Family, Items, Measure, Scores, gather_items, register, with_columns

NAMES = {
    "girl": ("Sue", "Anna", "Mary", "Lisa", "Emma", "Jane", "Kate", "Lucy", "Rose", "Sarah"),
    "boy": ("Tom", "John", "Mark", "Paul", "Jack", "Peter", "Sam", "Ben", "Adam", "David"),
}
TEMPLATES = ("{} cried because", "{} smiled because")


def write_prompts(path: Path) -> None:
    """One prompt for each name and sentence; the answer follows the name."""
    rows = [
        {
            "id": f"{name}-{at}",
            "text": template.format(name),
            "options": [" she", " he"],
            "answer": " she" if gender == "girl" else " he",
            "named": gender,
            "name": name,
        }
        for gender, names in NAMES.items()
        for name in names
        for at, template in enumerate(TEMPLATES)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rule_items(scores: Scores) -> Items:
    """Of each prompt: ln P(answer) − ln P(other), and whether it is above 0; names are clusters."""
    value = pl.col("logprob").filter("is_answer").first()
    value -= pl.col("logprob").filter(~pl.col("is_answer")).first()
    keys = ("model", "run", "step", "prompt_id", "name", "named")

    def items(frame: pl.LazyFrame) -> pl.DataFrame:
        margins = frame.group_by(keys).agg(value=value).collect()
        both = {"margin": pl.col("value"), "accuracy": (pl.col("value") > 0).cast(pl.Float64)}
        return pl.concat(
            margins.select(
                "model", "run", "step", item="prompt_id", cluster="name",
                part=pl.format(f"{kind} {{}}", "named"), value=each,
            )
            for kind, each in both.items()
        )  # fmt: skip

    return gather_items(items(frame) for frame in scores.frames())


RULE = register(
    Family(
        name="pronoun_rule",
        title="Pronoun rule",
        description="How often the pronoun after a sentence follows the name in it.",
        cautions=("Names of girls are few: other names may give other steps.",),
        prompts=with_columns("name", "named"),
        items=rule_items,
        measures=tuple(
            Measure(
                name=f"{kind}_{gender}", text=f"{text}, names of {gender}s", form=form,
                plus=(f"{kind} {gender}",), share=kind == "accuracy",
            )
            for gender in NAMES
            for kind, text, form in (
                ("accuracy", "Accuracy", ".1%"), ("margin", "Margin (nats)", "+.2f")
            )
        ),
    )
)  # fmt: skip


def course(measures: pl.DataFrame) -> pl.DataFrame:
    """Rise, peak, fall and crossing of the rule in names of girls, one row a model and run.

    `rise` is the first step with an accuracy above one half, and `peak_step` that of the largest,
    with its interval. `fall` is the first step after the peak with an accuracy below one half.
    `crossing` is the first step after the peak at which the margin is below 0. It is not before
    `crossing_from`, the first step whose interval has 0 in it or lies below, and not after
    `crossing_to`, the first step whose interval lies below. `depth` is the peak minus the lowest
    accuracy after it. What does not happen is null.
    """
    rows = []
    steps = measures.filter(pl.col("step").is_not_null()).sort("step")
    for (model, run), own in steps.group_by("model", "run", maintain_order=True):
        accuracy, margin = (own.filter(measure=f"{kind}_girl") for kind in ("accuracy", "margin"))
        peak = accuracy.row(int(accuracy["value"].arg_max() or 0), named=True)
        after = accuracy.filter(pl.col("step") >= peak["step"])
        later = margin.filter(pl.col("step") > peak["step"])

        def first(table: pl.DataFrame, condition: pl.Expr) -> int | None:
            found = table.filter(condition)["step"]
            return found[0] if len(found) else None

        rows.append(
            {
                "model": model, "run": run,
                "rise": first(accuracy, pl.col("value") > 0.5),
                "peak_step": peak["step"], "peak": peak["value"],
                "peak_low": peak["low"], "peak_high": peak["high"],
                "fall": first(after, pl.col("value") < 0.5),
                "crossing": first(later, pl.col("value") < 0),
                "crossing_from": first(later, pl.col("low") < 0),
                "crossing_to": first(later, pl.col("high") < 0),
                "depth": peak["value"] - after["value"].to_numpy().min(),
                "prompts": peak["items"], "names": peak["clusters"],
            }
        )  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


def analyze(bank: Path, folder: Path) -> None:
    """Write the study of a bank, and print what becomes of the rule in each model."""
    study = RULE.analyze(bank)
    study.save(folder)
    table = course(study.tables["measures"])
    table.write_csv(folder / "tables" / "course.csv")
    for row in table.sort("depth", descending=True).iter_rows(named=True):
        lost = "not lost"
        if row["fall"] is not None:
            lost = f"lost at step {row['fall']:,}, {row['depth']:.2f} below the peak"
        crossed = "the margin does not cross 0"
        if row["crossing"] is not None:
            crossed = f"the margin crosses 0 at step {row['crossing']:,}"
        print(
            f"{row['model']} {row['run']}: accuracy {row['peak']:.2f} at step "
            f"{row['peak_step']:,} ({row['prompts']} prompts), {lost}; {crossed}"
        )


if __name__ == "__main__":
    command, *paths = sys.argv[1:]
    {"prompts": write_prompts, "analyze": analyze}[command](*map(Path, paths))

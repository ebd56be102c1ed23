"""Placebos: what an edit that matters changes, beside one that should not matter."""

from importlib import import_module

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import with_columns
from logitbank.analysis.stats.measure import Measure

CHANGED, ODDS = "Changed answers", "Change of log-odds (nats)"

FAMILY = register(
    Family(
        name="placebo",
        title="Placebo",
        order=12,
        description=(
            "How often an edit of a prompt changes the answer, and how far it moves the log-odds "
            "of the options, beside a placebo: an edit of the same prompt that should not matter."
        ),
        cautions=(
            "A placebo stands for edits that should not matter. Another paraphrase may change more "
            "answers, or fewer.",
        ),
        notes=(
            "The answer is the most probable option. Log-odds are of an option among the options "
            "of its prompt; their absolute change is averaged over options.",
            "Intervals (95%) are over pairs; target and placebo are compared in the same pairs. Of "
            "WinoBias the target is the other pronoun and the placebo another option order, in "
            "questions about the occupation that the pronoun does not refer to.",
        ),
        prompts=with_columns("pair", "edit"),
        item="edit",
        cluster="pair",
        screen={"measures": columns("measure value low high items missing from_baseline")},
        measures=tuple(
            Measure(
                name=name,
                group=group,
                text=text,
                form=f"+{form}" if group == "difference" else form,
                plus=(f"{name} {'placebo' if group == 'placebo' else 'target'}",),
                minus=(f"{name} placebo",) * (group == "difference"),
                share=name == "changed",
            )
            for group in ("difference", "target", "placebo")
            for name, text, form in (("changed", CHANGED, ".1%"), ("odds", ODDS, ".3f"))
        ),
        items=lambda scores: import_module(".metric", __name__).placebo_items(scores),
        charts=lambda result: import_module(".charts", __name__).charts(result),
        findings=lambda result: import_module(".findings", __name__).findings(result),
    )
)

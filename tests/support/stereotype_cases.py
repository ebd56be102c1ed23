"""Sentences of stereotype accuracy in both orders, and WinoBias as its relative asks it."""

import polars as pl

from tests.support.fairness_cases import scan_frame

Scores = tuple[tuple[float, float], tuple[float, float]]
"""For each order, he named first and she named first: the original pronoun's, the other's."""

SENTENCES: dict[str, Scores] = {
    "a": ((-1.0, -2.0), (-1.0, -2.0)),  # stereotypical in both orders
    "b": ((-1.0, -2.0), (-4.0, -2.0)),  # −2.5 against −2: not
    "c": ((-1.0, -2.0), (-2.0, -1.0)),  # a tie
    "d": ((-3.0, -9.0), (-3.0, -2.0)),  # −3 against −5.5: stereotypical
}


def sa_frame(sentences: dict[str, Scores], *, step: int | None = 0, kind: int = 2) -> pl.DataFrame:
    rows = [
        {
            "model": "toy", "run": "main", "step": step, "prompt_id": f"{name}-{first}",
            "sentence_id": name, "order": first, "type": kind, "option": pronoun, "answer": "he",
            "is_answer": pronoun == "he", "piece": 0, "logprob": value,
        }
        for name, orders in sentences.items()
        for first, values in zip(("he", "she"), orders, strict=True)
        for pronoun, value in zip(("he", "she"), values, strict=True)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"step": pl.Int64})


def winobias(logits: object, gold: list[int], stereotype: list[str]) -> pl.DataFrame:
    """`logits` is (c, s, p, 3); prompt p is about sentence p and about the referred occupation."""
    frame = scan_frame(logits, gold=gold, sentences=[f"dev-{i}" for i in range(len(gold))])  # type: ignore[arg-type]
    marks = {f"prompt-{i}": mark for i, mark in enumerate(stereotype)}
    return frame.collect().with_columns(
        stereotype=pl.col("prompt_id").replace_strict(marks), asked=pl.lit("referred")
    )

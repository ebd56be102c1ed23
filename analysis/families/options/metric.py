"""Any prompt set: its options, its right answer, and how sure a model is, at every checkpoint."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import polars as pl

from logitbank.analysis.families.options.curves import CHECKPOINTS, CURVES, curves_of
from logitbank.analysis.families.options.score import Score, check_score
from logitbank.analysis.families.options.shares import ANSWERS, SHARES, Shares, option_shares
from logitbank.analysis.frames.pieces import together
from logitbank.analysis.prompts.scores import prompt_scores
from logitbank.analysis.results.tables import Result
from logitbank.store import Bank


@dataclass(frozen=True, slots=True)
class OptionScores(Result):
    """What `option_scores` found. `low` and `high` are 95 % intervals over prompts, in which
    prompts of one `sentence_id` count as one sentence."""

    shares: pl.DataFrame
    """model, run, step, prompt_set, option, prompts, sentences, share (mean), low, high,
    probability (mean), rank (mean; null where an option has several tokens); missing, the prompts
    of the set, each option order counted, whose option is not scored."""
    answers: pl.DataFrame
    """model, run, step, prompt_set, prompts, sentences, accuracy (the answer has a larger share
    than every other option), low, high, tied (prompts in which it shares the largest); missing, as
    above, those without one of their options. There are no rows without answers."""
    curves: pl.DataFrame
    """One row per checkpoint, prompt set and measure: value, the mean over prompts, null where
    there is none; low and high, NaN for fewer than ten prompts, where all are alike, and of ranks;
    prompts, over how many it is. Measures are `entropy` (nats), `probability` and `rank` of the
    right answer, and `agreement`."""
    checkpoints: pl.DataFrame
    """One row per checkpoint and prompt set: prompts that have every score, those missing,
    answered (that name a right answer, of all that were asked), and whether the checkpoint keeps
    full rows."""
    score: Score = "sum"
    """What options are compared by."""
    unconditional: int = 0
    """Prompts, each option order counted, that have no condition where one is needed; they are
    among the missing."""
    entropy: bool = True
    """Whether full rows were read."""

    @property
    def exp_name(self) -> str:
        """What exp of a score is: a probability, of sums and first tokens."""
        return "probability" if self.score in ("sum", "first") else "exp of the score"


def option_scores(
    bank: Bank,
    prompts: Sequence[str],
    *,
    models: Collection[str] | None = None,
    score: Score = "sum",
    entropy: bool = True,
) -> OptionScores:
    """Options, right answers, entropy and agreement of prompt sets. All arithmetic is float64.

    A prompt counts once, its option orders put together first. Prompts of a single option have no
    shares, and are counted by probability alone. Prompts that only others need, as their condition,
    have no shares. Entropy and agreement are means over the positions at which a prompt is scored.

    ``probability``, ``rank`` in `curves`
        Of the right answer: the option that is the prompt's answer, or the target word of a
        passage. Its probability is the product over its tokens; its rank is 1 + the number of
        outputs with a greater logit, of answers of one token alone.
    ``entropy``
        :math:`-\\sum_v p_v\\ln p_v` of the distribution over all outputs of the head, nats.
    ``agreement``
        Share of positions whose most probable token (of equal ones the first) is that of the
        run's last checkpoint, the release where there is one.

    Parameters
    ----------
    prompts
        Names of prompt sets. Of several, those that no chosen model was asked have no rows.
    models
        Only these; all if None.
    score
        What options are compared by in `shares` and `answers`, as `Score` says.
    entropy
        Whether to read full rows, where a checkpoint keeps them: every row of every checkpoint.
        Everything else is exact at every keep level.

    Raises
    ------
    BankError
        A prompt set or its deposits are not there, or options of it were named after full rows
        were kept. An answer has no probability, as its logit is not finite.
    UsageError
        The score is `pmi`, and no prompt has a condition.
    DamagedError
        Stored bytes are not what was committed.

    References
    ----------
    The scores of lm-evaluation-harness: `acc` compares sums, `acc_norm` divides by characters, and
    `acc_bytes` by bytes; `acc_mutual_info` is PMI whose condition is an empty text. Conditions of
    one's own, as "Answer:": Holtzman et al. 2021 (EMNLP, "Surface Form Competition"). Ours: ties
    for the largest count as wrong, and are told.
    """
    check_score(score)
    found = [Shares(pl.DataFrame(schema=SHARES), pl.DataFrame(schema=ANSWERS), 0)]
    curves, checkpoints = [pl.DataFrame(schema=CURVES)], [pl.DataFrame(schema=CHECKPOINTS)]
    for name in prompts:
        deposits = [
            deposit
            for deposit in bank.deposits_of(name)
            if models is None or deposit.checkpoint.model in models
        ]
        if not deposits and len(prompts) > 1:
            continue
        # First, as it refuses answers whose logits are not finite.
        of_set = curves_of(bank, name, deposits, entropy=entropy)
        curves.append(of_set[0])
        checkpoints.append(of_set[1])
        each = prompt_scores(bank, name, models=models, first_piece=score == "first", few=True)
        found.append(option_shares(each, name, score=score))
    return OptionScores(
        pl.concat(part.shares for part in found),
        pl.concat(part.answers for part in found),
        together(curves),
        together(checkpoints),
        score,
        sum(part.unconditional for part in found),
        entropy,
    )

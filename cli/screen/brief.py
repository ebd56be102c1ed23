"""Which tables of a result people see on the screen, and which columns; --table gives all of one.

By the result's class and then by table: two families may have tables of one name.
"""

from collections.abc import Mapping

_UNQOVER = (
    *("category", "split", "mu", "mu_low", "mu_high", "eta", "abs_c"),
    *("positional", "attributive", "coverage_8", "coverage_10", "instances", "missing"),
)
BRIEF: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Comparison": {
        "logits": (
            *("query_set", "rows", "entries", "max_logit_difference", "mean_logit_difference"),
            *("max_kl", "mean_kl", "argmax_changed", "ranks_changed", "max_rank_change"),
        ),
        "metrics": ("prompts", "metric", "group", "a", "b", "difference"),
        "only": ("query_set", "rows_a", "rows_b", "only_a", "only_b"),
    },
    "CrowsPairs": {
        "crows_pairs": (
            *("score_kind", "bias_type", "score", "low", "high"),
            *("stereo_score", "antistereo_score", "pairs", "neutral"),
        ),
    },
    "Debias": {
        "bias": (
            *("split", "filter", "abs_c", "abs_c_low", "abs_c_high", "mu", "eta"),
            *("positional", "attributive", "coverage", "instances", "missing"),
        ),
    },
    "DebiasComparison": {
        "comparison": (
            *("label", "language", "condition", "lms", "ss", "icat", "icat_change", "abs_c"),
        ),
        "unqover": _UNQOVER,
    },
    "DebiasSearch": {
        "points": (
            *("kind", "k", "regularisation", "temperature", "abs_c", "positional"),
            *("lms", "ss", "icat", "front", "best"),
        ),
    },
    "Fairness": {
        "gap": ("delta_scaled", "low_scaled", "high_scaled", "sd_scaled"),
        "average_rank": ("gold", "average_rank", "low", "high", "sd", "tied"),
        "tests": (
            *("measure", "test", "p", "p_bh", "rank_biserial", "difference"),
            *("from_baseline", "from_baseline_low", "from_baseline_high"),
        ),
        "comparison": (
            *("other_model", "option", "test", "statistic", "p", "p_bh", "effect", "significant"),
        ),
        "onset": ("onset_step", "sign", "p", "earliest", "latest", "delta_before", "delta_after"),
    },
    "Fluctuation": {
        "plateaus": ("first_step", "checkpoints", "prior_cv", "prior_certainty"),
        "spread": ("measure", "min", "max", "mean", "median", "n", "excluded"),
        "correlations": ("x", "y", "case", "r", "n", "excluded"),
        "run_pairs": ("measure", "run_a", "run_b", "r", "n", "excluded"),
        "frequent": ("case", "rank", "occupation", "frequency"),
    },
    "Lambada": {
        "lambada": ("acc", "low", "high", "from_baseline", "perplexity", "examples", "tied")
    },
    "StereoSet": {
        "scores": (
            *("language", "condition", "score", "task", "domain", "lms", "ss"),
            *("icat", "icat_low", "icat_high", "terms", "examples"),
        ),
        "differences": (
            *("condition", "task", "domain", "lms", "ss", "icat", "icat_low", "icat_high"),
        ),
    },
    "StereotypeAccuracy": {
        "stereotype_accuracy": (
            *("measure", "type", "accuracy", "low", "high", "sentences", "missing", "tied"),
        ),
        "winobias_em": ("em_pro", "em_anti", "bias", "low", "high", "pairs", "missing"),
    },
    "TradeOff": {
        "tradeoff": ("performance", "gap", "on_front", "front_share"),
        "choices": (
            *("give_up", "best_step", "performance", "gap", "fairness_change", "chosen_share"),
        ),
        "pairs": (
            *("before", "after", "performance_change", "performance_low", "performance_high"),
            *("fairness_change", "fairness_low", "fairness_high"),
        ),
        "change_points": ("curve", "last_before", "first_after", "p_wander", "earliest", "latest"),
    },
    "Unqover": {"unqover": _UNQOVER},
}

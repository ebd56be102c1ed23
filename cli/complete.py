"""Shell completion of known names. Nothing slow is imported."""


def suite_names(incomplete: str) -> list[str]:
    """Known suites."""
    from logitbank.engine.suites.catalogue import known_suites

    return [suite.name for suite in known_suites() if suite.name.startswith(incomplete)]


def prompt_set_names(incomplete: str) -> list[tuple[str, str]]:
    """Known prompt sets, each with a line of help."""
    from logitbank.engine.prompts.registry import known_sets

    about = {name: each.about for each in known_sets() for name in each.names()}
    return [(name, text) for name, text in about.items() if name.startswith(incomplete)]

"""What a shell offers at a Tab: names known without a bank, and nothing slow to import."""

from collections.abc import Iterable


def suite_names(incomplete: str) -> list[str]:
    """Suites known by name that begin so."""
    from logitbank.engine.suites.catalogue import known_suites

    return _beginning(incomplete, (suite.name for suite in known_suites()))


def prompt_set_names(incomplete: str) -> list[tuple[str, str]]:
    """Prompt sets known by name that begin so, each with a line about it."""
    from logitbank.engine.prompts.registry import known_sets

    about = {name: each.about for each in known_sets() for name in each.names()}
    return [(name, about[name]) for name in _beginning(incomplete, about)]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]

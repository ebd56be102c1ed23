"""What the fixture `call` gives."""

from collections.abc import Callable

Call = Callable[..., tuple[int, str, str]]
"""Arguments of `logitbank`; exit code, stdout and stderr."""

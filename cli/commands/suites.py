"""The command `suites`."""

import logitbank
from logitbank.cli.options import Format


def suites(form: Format = "table") -> None:
    """List the checkpoint suites known by name."""
    import polars as pl

    from logitbank.cli.output import print_frame

    columns = ("name", "repo", "description")
    rows = [tuple(getattr(s, c) for c in columns) for s in logitbank.known_suites()]
    print_frame(pl.DataFrame(rows, schema=columns, orient="row"), form)

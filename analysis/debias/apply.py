"""A view of a bank through a filter, in a folder."""

from pathlib import Path

from logitbank.analysis.debias.compare import untrained_like
from logitbank.store import Readable
from logitbank.store.filter.filters import Filter
from logitbank.store.filter.view import View, open_bank


def debias_apply(
    by: str | Path | Filter,
    bank: str | Path | Readable,
    view: str | Path,
    *,
    name: str | None = None,
    untrained: bool = False,
) -> View:
    """Make a view of a bank through a filter, which every analysis takes like a bank.

    Parameters
    ----------
    by
        A filter, or its file.
    view
        Folder for the view.
    name
        What the model is called there; by default its own name and what the filter is.
    untrained
        Take the filter that this one began as.

    Raises
    ------
    LogitbankError
        A file or bank that is not there, a filter that does not fit, or a folder with something in
        it.
    """
    filter_ = by if isinstance(by, Filter) else Filter.load(by)
    made = View.of(open_bank(bank), untrained_like(filter_) if untrained else filter_, name=name)
    made.save(Path(view))
    return made

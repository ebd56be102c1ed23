"""Run every checkpoint of a language model over every prompt once, and store the logits.

``bank = logitbank.open("toy.zarr")`` opens a bank at a path or a URL. It has ``models``, ``steps``
and ``prompt_sets``, ``scan(prompts)`` for all scores as a Polars frame, ``sql(query)`` and
``to_xarray(prompts)``. Each command has a function of the same name: ``extract`` fills a bank;
``fairness``, ``options``, ``show``, ``report`` and ``compare`` read banks. Their results have
``findings``, ``tables`` and Altair ``charts``; ``save`` writes them with a page.

Prompt sets, suites and settings of a run are in ``logitbank.engine``; results, metrics of frames
and debiasing in ``logitbank.analysis``; deposits and query sets in ``logitbank.store``; a model of
lm-evaluation-harness that answers from a bank in ``logitbank.harness``.
"""

# Names are imported at their first use, so that `import logitbank` is quick and needs no engine.
# Type checkers read the following imports, and `front_door` reads them as text. A family of metrics
# is found by its name.

from pathlib import Path
from typing import TYPE_CHECKING, Any

from logitbank.analysis.families import BUILT_IN, built_in
from logitbank.front_door import front_door
from logitbank.version import __version__ as __version__

if TYPE_CHECKING:
    from logitbank import analysis as analysis
    from logitbank import engine as engine
    from logitbank import harness as harness
    from logitbank import store as store
    from logitbank.analysis.comparison.compare import compare as compare
    from logitbank.analysis.finding import Finding as Finding
    from logitbank.analysis.prompts.show import show as show
    from logitbank.analysis.report.report import report as report
    from logitbank.analysis.results.export import export as export
    from logitbank.analysis.results.query import query as query
    from logitbank.analysis.study import Study as Study
    from logitbank.cli.commands.demo import demo as demo
    from logitbank.engine.extract import extract as extract
    from logitbank.engine.suites.fetch import fetch as fetch
    from logitbank.errors import LogitbankError as LogitbankError
    from logitbank.store.bank import Bank as Bank
    from logitbank.store.care.verify import verify as verify
    from logitbank.store.change.about import describe as describe
    from logitbank.store.change.merge import merge as merge
    from logitbank.store.change.shrink import shrink as shrink
    from logitbank.store.read.choose import Names, Steps
    from logitbank.store.read.mapping import map_rows as map_rows
    from logitbank.store.share.push import pull as pull
    from logitbank.store.share.push import push as push


def open(
    path: str | Path,
    *,
    models: "Names" = None,
    steps: "Steps" = None,
    prompts: "Names" = None,
    rows: bool = False,
) -> "Bank":
    """Open an existing bank, in a folder or at a URL. `Bank.create` creates a new one.

    The scores of a bank at a URL are copied into the cache: those of these models, steps and prompt
    sets, or all if None. With `rows`, full rows of logits are copied as well.
    """
    from logitbank.store.bank import open_bank

    return open_bank(path, models=models, steps=steps, prompts=prompts, rows=rows)


_find, _names = front_door(__name__, __file__, names=("open", *BUILT_IN))


def __getattr__(name: str) -> Any:
    return built_in(name).analyze if name in BUILT_IN else _find(name)


def __dir__() -> list[str]:
    return _names()


__all__ = _names()

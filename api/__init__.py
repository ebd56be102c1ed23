"""Run every checkpoint of a language model over every prompt once, and store the logits.

``bank = logitbank.open("toy.zarr")`` opens a bank at a path or a URL. It has ``models``, ``steps``
and ``prompt_sets``, ``scan(prompts)`` for all scores as a Polars frame, ``sql(query)`` and
``to_xarray(prompts)``. Each command has a function of the same name: ``extract`` fills a bank;
``fairness``, ``options``, ``show``, ``report`` and ``compare`` read banks. Their results have
``findings``, ``tables`` and Altair ``charts``; ``save`` writes them with a page.
"""

# Names are imported at their first use, so that `import logitbank` is quick and needs no engine.
# Type checkers read the following imports, and `front_door` reads them as text.

from pathlib import Path
from typing import TYPE_CHECKING

from logitbank.front_door import front_door
from logitbank.version import __version__ as __version__

if TYPE_CHECKING:
    from logitbank.analysis.charts.theme import theme as theme
    from logitbank.analysis.comparison.compare import compare as compare
    from logitbank.analysis.debias.compare import debias_compare as debias_compare
    from logitbank.analysis.debias.train import Training as Training
    from logitbank.analysis.debias.train import debias_train as debias_train
    from logitbank.analysis.families.fairness import fairness as fairness
    from logitbank.analysis.families.fluctuation import fluctuation as fluctuation
    from logitbank.analysis.families.gest import gest as gest
    from logitbank.analysis.families.lambada import lambada as lambada
    from logitbank.analysis.families.options import options as options
    from logitbank.analysis.families.pairs import pairs as pairs
    from logitbank.analysis.families.stereoset import stereoset as stereoset
    from logitbank.analysis.families.stereotype import stereotype as stereotype
    from logitbank.analysis.families.tradeoff import tradeoff as tradeoff
    from logitbank.analysis.families.unqover import unqover as unqover
    from logitbank.analysis.finding import Finding as Finding
    from logitbank.analysis.harness import read_harness as read_harness
    from logitbank.analysis.prompts.show import show as show
    from logitbank.analysis.report.report import report as report
    from logitbank.analysis.results.export import export as export
    from logitbank.analysis.results.query import query as query
    from logitbank.analysis.study import Study as Study
    from logitbank.cli.demo import demo as demo
    from logitbank.engine.extract import extract as extract
    from logitbank.engine.prompts.check import prompts_check as prompts_check
    from logitbank.engine.prompts.check import prompts_show as prompts_show
    from logitbank.engine.prompts.prompt_set import PromptSet as PromptSet
    from logitbank.engine.prompts.values import Option as Option
    from logitbank.engine.prompts.values import Prompt as Prompt
    from logitbank.engine.request import ExtractRequest as ExtractRequest
    from logitbank.engine.suites.catalogue import known_suites as known_suites
    from logitbank.engine.suites.fetch import fetch as fetch
    from logitbank.errors import LogitbankError as LogitbankError
    from logitbank.store.bank import Bank as Bank
    from logitbank.store.care.verify import verify as verify
    from logitbank.store.change.about import describe as describe
    from logitbank.store.change.merge import merge as merge
    from logitbank.store.change.shrink import shrink as shrink
    from logitbank.store.format.queries import QuerySet as QuerySet
    from logitbank.store.format.schema import CheckpointId as CheckpointId
    from logitbank.store.format.schema import Query as Query
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


__getattr__, __dir__ = front_door(__name__, __file__, "open")
__all__ = __dir__()

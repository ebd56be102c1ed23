"""Turn checkpoints and prompts into reduced logits."""

# As in `logitbank` itself: read by type checkers, and by `front_door` as text.

from typing import TYPE_CHECKING

from logitbank.front_door import front_door

if TYPE_CHECKING:
    from logitbank.engine.prompts.check import Checked as Checked
    from logitbank.engine.prompts.check import prompts_check as prompts_check
    from logitbank.engine.prompts.check import prompts_show as prompts_show
    from logitbank.engine.prompts.files import load_prompts as load_prompts
    from logitbank.engine.prompts.known.winobias import winobias as winobias
    from logitbank.engine.prompts.prompt_set import PromptSet as PromptSet
    from logitbank.engine.prompts.tokenize import TokenizedPrompts as TokenizedPrompts
    from logitbank.engine.prompts.tokenize import tokenize as tokenize
    from logitbank.engine.prompts.values import Option as Option
    from logitbank.engine.prompts.values import Prompt as Prompt
    from logitbank.engine.request import ExtractRequest as ExtractRequest
    from logitbank.engine.suites.catalogue import KnownSuite as KnownSuite
    from logitbank.engine.suites.catalogue import known_suites as known_suites
    from logitbank.engine.suites.fetch import Fetched as Fetched
    from logitbank.engine.suites.suites import Checkpoint as Checkpoint
    from logitbank.engine.suites.suites import Suite as Suite
    from logitbank.engine.suites.suites import resolve_suite as resolve_suite

__getattr__, __dir__ = front_door(__name__, __file__)
__all__ = __dir__()

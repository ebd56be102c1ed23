"""Run and plan requests whose suites and prompts are values, without reading them again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import logitbank.engine.plan.prepare
import logitbank.engine.run
from logitbank.engine.plan.prepare import Prepared
from logitbank.engine.prompts.registry import prompt_sets
from logitbank.engine.request import ExtractRequest
from logitbank.engine.suites.suites import Suite
from logitbank.engine.workers.events import Summary
from logitbank.store import Bank


def _suites(request: ExtractRequest) -> Sequence[Suite]:
    suites = [suite for suite in request.listed if isinstance(suite, Suite)]
    assert len(suites) == len(request.listed)
    return suites


def run(path: str | Path, request: ExtractRequest, **options: Any) -> Summary:
    """`logitbank.engine.run.run` with the request's own suites and prompts."""
    prompts = prompt_sets(request.prompts, data=request.data)
    return logitbank.engine.run.run(path, request, _suites(request), prompts, **options)


def make_plan(request: ExtractRequest, bank: Bank | None, first: Path, **options: Any) -> Prepared:
    """`logitbank.engine.plan.prepare.make_plan` of the request's only suite."""
    (suite,) = _suites(request)
    prompts = prompt_sets(request.prompts, data=request.data)
    return logitbank.engine.plan.prepare.make_plan(request, suite, prompts, bank, first, **options)

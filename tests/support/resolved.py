"""Run and plan requests whose suites and prompts are values, without reading them again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import logitbank.engine.run
from logitbank.engine.plan.engine_choice import engine_start
from logitbank.engine.plan.parallel import ParallelConfig
from logitbank.engine.plan.prepare import Machines, PlanInputs, Prepared, plan_suite
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
    parallel = ParallelConfig.detect(workers=request.workers, shard=request.shard, ray=request.ray)
    defaults = {"start": engine_start(request), "parallel": parallel}
    suites = _suites(request)
    return logitbank.engine.run.run(path, request, suites, prompts, **defaults | options)


def make_plan(request: ExtractRequest, bank: Bank | None, first: Path, **options: Any) -> Prepared:
    """`plan_suite` of the request's only suite; `options` are fields of its inputs."""
    (suite,) = _suites(request)
    machine = {name: options.pop(name) for name in ("gpu", "cards", "engines") if name in options}
    inputs = PlanInputs(
        request=request,
        prompts=prompt_sets(request.prompts, data=request.data),
        bank=bank,
        start=engine_start(request),
        machines=Machines(**machine),
        **options,
    )
    return plan_suite(inputs, suite, first)

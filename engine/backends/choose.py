"""Import and start the engine that the settings name."""

import os
from collections.abc import Callable
from pathlib import Path

from logitbank.engine.backends.device import require_usable_gpu
from logitbank.engine.backends.engine import engine_named
from logitbank.engine.backends.protocol import Backend, EngineSettings, EngineStart, Task
from logitbank.errors import DeviceError


def open_backend(folder: Path, settings: EngineSettings) -> Backend:
    """Start the engine that the settings name, on the architecture of `folder`.

    Raises
    ------
    DeviceError
        This process may use a GPU, and torch or the engine cannot.
    SuiteError
        The config has an unknown field that may change the model.
    """
    from logitbank.engine.weights.supported import check_fields

    require_usable_gpu(os.environ)
    engine = engine_named(settings.engine)
    if problem := engine.machine_problem(os.environ):
        raise DeviceError(f"{problem}. Use {engine.advice or 'another machine'}.")
    check_fields(folder, trust_remote_code=settings.trust_remote_code)
    return import_engine(settings.start, settings.task)(folder, settings)


def import_engine(
    start: EngineStart, task: Task = "causal"
) -> Callable[[Path, EngineSettings], Backend]:
    """Import the class of an engine, which takes seconds."""
    engine = engine_named(start.engine)
    os.environ |= engine.environment(start)
    return engine.open(task)

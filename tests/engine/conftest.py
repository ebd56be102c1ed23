"""What engines leave behind in a process, and tokenizers of tests about prompts."""

import os
import sys
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from logitbank.engine.tokenizers.tokenizer import Tokenizer
from tests.support.checkpoints import write_masked_tokenizer, write_tokenizer


@pytest.fixture(autouse=True)
def no_engine_before() -> Iterator[None]:
    """No test's engine is as that of the test before it, which set variables and switches.

    A process of an engine has the one engine; here are many, and the processes that they start.
    """
    with patch.dict(os.environ):
        yield
    if torch := sys.modules.get("torch"):
        torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("causal")
    write_tokenizer(folder)
    return Tokenizer.load(folder)


@pytest.fixture(scope="session")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("masked")
    write_masked_tokenizer(folder)
    return Tokenizer.load(folder)

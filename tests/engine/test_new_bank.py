"""Title, license and citation that `extract` gives to a new bank."""

from pathlib import Path

import pytest

from logitbank.engine.extract import extract
from logitbank.errors import UsageError
from logitbank.store import Bank
from tests.support.fakes import FakeBackend, questions, write_series


def test_extract_describes_only_a_new_bank(tmp_path: Path, backend: FakeBackend) -> None:
    series = write_series(tmp_path / "tiny", "step0")
    path = tmp_path / "b"

    def go(**about: str) -> None:
        extract(
            path,
            suite=str(series),
            prompts=questions(" the nurse said"),
            engine="transformers",
            canary_every=0,
            **about,  # type: ignore[arg-type]
        )

    go(licence="CC-BY-4.0", citation="Ada 2026")
    attributes = Bank.open(path).attributes
    about = [attributes[name] for name in ("title", "licence", "citation")]
    assert about == ["", "CC-BY-4.0", "Ada 2026"]
    go(licence="CC-BY-4.0")  # the same again, or without
    go()
    with pytest.raises(UsageError, match=r"CC-BY-4\.0"):
        go(licence="CC0-1.0")

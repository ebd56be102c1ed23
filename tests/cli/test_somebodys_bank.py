"""A bank at a URL: is it sound, is it the published one, may it be used."""

import re
from pathlib import Path

import pytest

from logitbank.store import describe
from logitbank.store.read.provenance import bank_digest
from tests.support.command import Call
from tests.support.file_server import FileServer
from tests.support.small_banks import fill, new_bank, spec

pytest.importorskip("obstore")
pytest.importorskip("huggingface_hub")


def test_a_published_bank_is_verified_and_compared_with_its_digest(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # about the Hub alone
    bank = new_bank(tmp_path / "b")
    fill(bank, spec(0))
    describe(bank.path, license="")
    _, out, err = call("push", bank.path, tmp_path / "public")
    assert f"Digest of the bank: {bank_digest(bank.path)}" in out
    assert f"logitbank describe {bank.path} --license" in err
    with FileServer(tmp_path / "public") as server:
        code, out, _ = call("verify", server.url, "--digest", bank_digest(bank.path))
        assert code == 0
        assert f"Documents and tables of {server.url} are sound: 1 deposit." in out
        assert re.search(r"need a copy of [\d.]+ kB: run `logitbank pull", out)
        assert "This is the published bank" in out
        _, out, _ = call("info", server.url)
        assert "Not stored: license, citation. Ask its publisher" in out
        assert "describe" not in out
    assert call("pull", tmp_path / "public", tmp_path / "copy")[0] == 0
    fill(new_bank(tmp_path / "forged"), spec(0), seed=1)
    for path, expected in ((tmp_path / "copy", 0), (tmp_path / "forged", 1)):
        code, out, _ = call("verify", path, "--digest", bank_digest(bank.path)[:12])
        assert (code, "No damage" in out) == (expected, True)
    assert call("verify", bank.path, "--digest", "short")[0] == 2
    describe(bank.path, license="MIT")
    assert not call("push", bank.path, tmp_path / "public")[2]


def test_provenance_fits_a_screen(tmp_path: Path, call: Call) -> None:
    bank = new_bank(tmp_path / "b")
    for step in range(6):
        fields = {f"field{i}": str(i) for i in range(30)}
        fill(bank, spec(step, weights=f"{step}" * 64, host="ada", **fields))
    _, out, _ = call("info", bank.path, "--provenance")
    assert "weights: 6 different values" in out
    assert len(out.splitlines()) <= 24
    assert "field29" in out

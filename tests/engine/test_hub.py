"""One hub and its cache: what is listed, what is downloaded, and every refusal in one line."""

import errno
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from logitbank.engine.suites.hub import Hub, HubSource
from logitbank.errors import DiskSpaceError, MissingExtraError, SuiteError, WeightsError
from tests.support.hub_server import HubServer

REPO = "lab/toy"
WEIGHTS = r"GET .*/resolve/.*\.safetensors"


def hub_source(revision: str, repo: str = REPO) -> HubSource:
    return HubSource(repo, revision)


def write_revision(root: Path, revision: str, *, value: float, repo: str = REPO) -> Path:
    folder = root / repo / revision
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt_neox"}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "modeling_toy.py").write_text("raise SystemExit")
    (folder / "README.md").write_text("a toy")
    save_file({"w": torch.full((4,), value)}, folder / "model.safetensors")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    write_revision(root, "main", value=2)
    write_revision(root, "step1", value=1)
    write_revision(root, "step2", value=2)
    return root


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that huggingface_hub would wait before it asks again."""
    waited: list[float] = []
    clock = SimpleNamespace(sleep=waited.append, time=time.time)
    monkeypatch.setattr("huggingface_hub.utils._http.time", clock)
    return waited


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# Listing


def test_branches_tags_and_files_are_listed(hub, server):
    server.tags.add("step2")
    assert hub.refs(REPO) == (["main", "step1"], ["step2"])
    files = hub.files(REPO, "step1")[""]
    assert (files["tokenizer.json"].size, files["tokenizer.json"].sha256) == (2, None)
    assert len(files["model.safetensors"].sha256) == 64


# Downloads


def test_fetch_brings_weights_and_settings_but_no_code(hub, server):
    folder = hub.fetch(hub_source("step1"))
    assert files_in(folder) == {"config.json", "tokenizer.json", "model.safetensors"}
    assert server.count(r"\.py|README") == 0


@pytest.mark.parametrize(
    "name",
    [
        *("tokenizer.model", "vocab.json", "vocab.txt", "merges.txt", "added_tokens.json"),
        *("spiece.model", "sentencepiece.bpe.model", "spm.model", "special_tokens_map.json"),
        *("tokenizer_config.json", "generation_config.json"),
    ],
)
def test_every_file_that_a_tokenizer_is_read_from_is_fetched(hub, root, name):
    (root / REPO / "step1" / name).write_text("{}")
    assert name in files_in(hub.fetch(hub_source("step1")))


def test_legacy_weights_are_fetched_only_without_safetensors(root, hub, server):
    for revision in ("step1", "step2"):
        torch.save({}, root / REPO / revision / "pytorch_model.bin")
    (root / REPO / "step2" / "model.safetensors").unlink()
    assert "pytorch_model.bin" not in files_in(hub.fetch(hub_source("step1")))
    assert "pytorch_model.bin" in files_in(hub.fetch(hub_source("step2")))
    assert server.count(r"GET .*resolve.*\.bin") == 1


def test_a_download_into_a_folder_leaves_the_cache_alone(hub, tmp_path):
    folder = hub.fetch(hub_source("step1"), into=tmp_path / "mine")
    assert folder == tmp_path / "mine"
    assert (folder / "model.safetensors").is_file()
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_a_connection_that_breaks_is_continued_where_it_broke(hub, server, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 8)
    server.broken = 1
    came: list[int] = []
    folder = hub.fetch(hub_source("step1"), on_bytes=came.append)
    assert server.count(WEIGHTS) == 2
    size = (folder / "model.safetensors").stat().st_size
    assert server.sent_bytes == size, "no byte came twice"
    assert sum(came) == sum(file.size for file in hub.needed(hub_source("step1")))


def test_content_that_is_not_its_digests_is_refused_and_not_kept(hub, server, root, tmp_path):
    server.damaged = 1
    with pytest.raises(WeightsError, match=r"model\.safetensors of .* step1 does not have the SHA"):
        hub.fetch(hub_source("step1"))
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
    folder = hub.fetch(hub_source("step1"))
    expected = (root / REPO / "step1" / "model.safetensors").read_bytes()
    assert (folder / "model.safetensors").read_bytes() == expected
    assert server.count("GET .*/config.json") == 1, "whole files are not fetched again"


def test_a_failed_download_raises_and_leaves_no_files(hub, tmp_path):
    def stop(number: int) -> None:
        if number > 2:
            raise SuiteError("stop")

    with pytest.raises(SuiteError, match="^stop$"):
        hub.fetch(hub_source("step1"), on_bytes=stop)
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_the_cache_is_used_when_the_hub_goes_out_of_reach(root, tmp_path, monkeypatch, pauses):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with HubServer(root) as server:
        hub = Hub(server.endpoint, tmp_path / "cache")
        folder = hub.fetch(hub_source("step1"))
        hub.needed(hub_source("step2"))
    assert hub.fetch(hub_source("step1")) == folder
    with pytest.raises(SuiteError, match="cannot reach"):
        hub.fetch(hub_source("step2"))


# Refusals


def test_offline_without_files_the_error_names_fetch(hub, server, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    message = "not in the cache .* and HF_HUB_OFFLINE is set; run `logitbank fetch` while online"
    for ask in (
        lambda: hub.refs(REPO),
        lambda: hub.fetch(hub_source("step1")),
        lambda: hub.files(REPO, "step1"),
    ):
        with pytest.raises(SuiteError, match=message):
            ask()
    assert server.requests == []


def test_a_checkpoint_that_came_in_part_is_not_used_offline(hub, root, tmp_path, monkeypatch):
    hub.fetch(hub_source("step1")).joinpath("model.safetensors").unlink()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SuiteError, match="the weights of lab/toy at revision step1 are not in the"):
        hub.fetch(hub_source("step1"))


def test_a_revision_without_weights_is_an_error_with_a_fix(root, hub):
    folder = root / REPO / "step1"
    (folder / "model.safetensors").unlink()
    with pytest.raises(
        WeightsError, match=r"step1 contains no weights: looked for model\.safetens"
    ):
        hub.fetch(hub_source("step1"))
    (root / REPO / "main" / "model.safetensors").rename(root / REPO / "main" / "q4.gguf")
    with pytest.raises(WeightsError, match=r"q4\.gguf in lab/toy at revision main is a GGUF file"):
        hub.fetch(hub_source("main"))


def hub_calls(hub: Hub, revision: str, repo: str = REPO) -> list[Callable[[], object]]:
    return [lambda: hub.refs(repo), lambda: hub.fetch(hub_source(revision, repo))]


def assert_refused(hub_calls: list[Callable[[], object]], message: str) -> None:
    for ask in hub_calls:
        with pytest.raises(SuiteError, match=message):
            ask()


def test_unknown_repository_and_revision_are_named(hub, server):
    message = f"'lab/absent' is not on {server.endpoint}, or is private; check the name"
    assert_refused(hub_calls(hub, "main", "lab/absent"), message)
    assert_refused(
        hub_calls(hub, "step9")[1:], "lab/toy at revision step9 is not on .*; choose a br"
    )
    assert_refused(
        hub_calls(hub, "main", "a//b"), "'a//b' is not a repository name; use owner/name"
    )


def test_gated_repository_needs_its_license_and_a_token(root, hub, monkeypatch):
    write_revision(root, "main", value=1, repo="lab/closed")
    with pytest.raises(SuiteError, match="closed is gated: accept its license on .* set HF_TOKEN"):
        hub.fetch(hub_source("main", "lab/closed"))
    monkeypatch.setenv("HF_TOKEN", "let-me-in")
    assert (hub.fetch(hub_source("main", "lab/closed")) / "model.safetensors").is_file()


def test_a_limit_of_requests_is_waited_for_and_said_if_it_does_not_end(hub, server, pauses):
    server.limited, server.retry_after = 2, "7"
    hub.files(REPO, "step1")
    assert pauses == [8.0, 8.0], "a second is added by huggingface_hub"
    server.limited = 99
    assert_refused([lambda: hub.files(REPO, "step2")], "answered 429 for .*HF_TOKEN raises")


def test_unreachable_hub_is_named(tmp_path, monkeypatch, pauses):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
        hub = Hub(endpoint, tmp_path)
        assert_refused(hub_calls(hub, "main"), f"cannot reach {endpoint} for lab/toy.*ConnectE")


@pytest.mark.parametrize(
    ("status", "message"), [(403, "lab/toy is gated"), (500, "answered 500 for lab/toy")]
)
def test_hub_that_refuses_or_fails_is_named(hub, server, pauses, status, message):
    server.status = status
    assert_refused(hub_calls(hub, "main"), message)


LISTED = {"type": "file", "path": "model.safetensors", "size": 5}
PAGES = {
    "listing": ("/tree/", "<html>Log in</html>"),
    "lfs": ("/tree/", json.dumps([LISTED | {"lfs": "yes"}])),
    "commit": ("/revision/", "<html>Log in</html>"),
}


@pytest.mark.parametrize(("place", "page"), PAGES.values(), ids=PAGES)
def test_an_answer_that_is_none_of_a_hub_names_who_gave_it(hub, server, place, page):
    server.instead[place] = page.encode()
    server.instead["/refs"] = b"<html>Log in</html>"
    assert_refused(hub_calls(hub, "main"), r"for lab/toy.*no valid answer \(.*HF_ENDPOINT")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_names_the_cache(hub, monkeypatch, number):
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("huggingface_hub.snapshot_download", full)
    message = "the disk of .*cache filled up while fetching lab/toy at revision main; free some"
    with pytest.raises(DiskSpaceError, match=message):
        hub.fetch(hub_source("main"))


# Settings


def test_environment_names_endpoint_and_cache(tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1/")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    assert (Hub().endpoint, Hub().cache_dir) == ("http://127.0.0.1:1", tmp_path / "hub")
    assert Hub("http://127.0.0.1:2").endpoint == "http://127.0.0.1:2"
    assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == "1"
    assert huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY is True


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r'pip install "logitbank\[engine\]"'):
        Hub()

"""One hub and its cache: what is listed, what is downloaded, and every refusal in one line."""

import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from logitbank.engine.suites.hub import Hub
from logitbank.engine.suites.sources import HubSource
from logitbank.errors import DiskSpaceError, MissingExtraError, SuiteError, WeightsError
from tests.support.hub_server import HubServer

REPO = "lab/toy"
WEIGHTS = r"GET .*/resolve/.*\.safetensors"


def at(revision: str, repo: str = REPO) -> HubSource:
    return HubSource(repo, revision)


def write_revision(
    root: Path, revision: str, *, value: float, repo: str = REPO, legacy: bool = False
) -> Path:
    folder = root / repo / revision
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt_neox"}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "modeling_toy.py").write_text("raise SystemExit")
    (folder / "README.md").write_text("a toy")
    tensors = {"w": torch.full((4,), value)}
    if legacy:
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    write_revision(root, "main", value=2)
    write_revision(root, "step1", value=1)
    write_revision(root, "step2", value=2)
    return root


@pytest.fixture
def server(root: Path) -> Iterator[HubServer]:
    with HubServer(root, gated={"lab/closed"}) as server:
        yield server


@pytest.fixture
def hub(server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    return Hub(server.endpoint, tmp_path / "cache")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that huggingface_hub would wait before it asks again."""
    waited: list[float] = []
    clock = SimpleNamespace(sleep=waited.append, time=time.time)
    monkeypatch.setattr("huggingface_hub.utils._http.time", clock)
    return waited


def test_branches_and_tags_are_listed(hub, server):
    server.tags.add("step2")
    assert hub.refs(REPO) == (["main", "step1"], ["step2"])


def test_files_have_sizes_and_digests_of_large_ones(hub):
    files = hub.files(REPO, "step1")
    assert files["tokenizer.json"].size == 2
    assert files["tokenizer.json"].sha256 is None
    assert len(files["model.safetensors"].sha256) == 64


def test_weights_digest_of_shards_depends_on_each(root, hub):
    for revision, last in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
        folder = root / REPO / revision
        folder.mkdir()
        save_file({"x": torch.zeros(1)}, folder / "model-00001-of-00002.safetensors")
        save_file({"y": torch.full((1,), last)}, folder / "model-00002-of-00002.safetensors")
    digests = [hub.weights_digest(at(revision)) for revision in "abc"]
    assert digests[0] == digests[1] != digests[2]


def test_fetch_brings_weights_and_settings_but_no_code(hub, server):
    folder = hub.fetch(at("step1"))
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors"}
    assert server.count(r"\.py|README") == 0


def test_offline_and_not_fetched_says_how_to_fetch(hub, server, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    message = r"not in the cache .* and HF_HUB_OFFLINE is set; run `logitbank fetch` while online"
    with pytest.raises(SuiteError, match="the revisions of lab/toy are " + message):
        hub.refs(REPO)
    with pytest.raises(SuiteError, match="all files of lab/toy at revision step1 are " + message):
        hub.fetch(at("step1"))
    with pytest.raises(SuiteError, match="the files of lab/toy at revision step1 are " + message):
        hub.files(REPO, "step1")
    assert server.requests == []


def test_legacy_weights_are_fetched_where_there_are_no_others(root, hub):
    write_revision(root, "step3", value=3, legacy=True)
    folder = hub.fetch(at("step3"))
    assert (folder / "pytorch_model.bin").is_file()


def test_legacy_weights_beside_safetensors_are_never_fetched(root, hub, server):
    torch.save({}, root / REPO / "step1" / "pytorch_model.bin")
    folder = hub.fetch(at("step1"))
    assert (folder / "model.safetensors").is_file()
    assert server.count(r"resolve.*\.bin") == 0


def test_revision_without_weights_says_what_was_looked_for(root, hub):
    (root / REPO / "step1" / "model.safetensors").unlink()
    message = r"lab/toy at revision step1 holds no weights: looked for model\.safetensors, "
    with pytest.raises(WeightsError, match=message):
        hub.fetch(at("step1"))


def test_revision_of_gguf_files_says_what_to_do(root, hub):
    (root / REPO / "step1" / "q4.gguf").write_bytes(b"GGUF")
    (root / REPO / "step1" / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"q4\.gguf of lab/toy at revision step1 is a GGUF file"):
        hub.fetch(at("step1"))


def test_unknown_repository_is_named(hub, server):
    message = rf"repository 'lab/absent' is not on {server.endpoint}, or is private; `logitbank su"
    with pytest.raises(SuiteError, match=message):
        hub.refs("lab/absent")
    with pytest.raises(SuiteError, match=message):
        hub.fetch(at("main", "lab/absent"))


def test_unknown_revision_is_named(hub):
    message = "lab/toy at revision step9 is not on .*; choose a branch or tag"
    for ask in (lambda: hub.files(REPO, "step9"), lambda: hub.fetch(at("step9"))):
        with pytest.raises(SuiteError, match=message):
            ask()


def test_text_that_is_no_repository_is_refused(hub):
    with pytest.raises(SuiteError, match="'a//b' is no repository name; use owner/name"):
        hub.refs("a//b")


def test_gated_repository_says_to_accept_the_licence(root, hub):
    write_revision(root, "main", value=1, repo="lab/closed")
    message = "lab/closed is gated: accept its license on http.*/lab/closed, then set HF_TOKEN"
    with pytest.raises(SuiteError, match=message):
        hub.fetch(at("main", "lab/closed"))


def test_token_of_the_environment_opens_a_gated_repository(root, hub, monkeypatch):
    write_revision(root, "main", value=1, repo="lab/closed")
    monkeypatch.setenv("HF_TOKEN", "let-me-in")
    assert (hub.fetch(at("main", "lab/closed")) / "model.safetensors").is_file()


def test_a_connection_that_breaks_is_continued_where_it_broke(hub, server, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 8)
    server.broken = 1
    came: list[int] = []
    folder = hub.fetch(at("step1"), on_bytes=came.append)
    assert server.count(WEIGHTS) == 2
    size = (folder / "model.safetensors").stat().st_size
    assert server.sent_bytes == size, "no byte came twice"
    assert sum(came) == sum(file.size for file in hub.needed(at("step1")))


def test_a_file_that_came_damaged_is_fetched_once_more(hub, server, root):
    server.damaged = 1
    folder = hub.fetch(at("step1"))
    expected = (root / REPO / "step1" / "model.safetensors").read_bytes()
    assert (folder / "model.safetensors").read_bytes() == expected
    assert server.count(WEIGHTS) == 2


def test_content_that_is_not_its_digests_is_refused_and_not_kept(hub, server, tmp_path):
    server.damaged = 99
    with pytest.raises(WeightsError, match=r"model\.safetensors of lab/toy at revision step1 came"):
        hub.fetch(at("step1"))
    assert server.count(WEIGHTS) == 2
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
    server.damaged = 0
    assert hub.fetch(at("step1"))
    assert server.count("GET .*/config.json") == 1, "what is whole is not fetched again"


def test_what_stops_a_download_is_raised_and_nothing_is_kept(hub, tmp_path):
    def stop(number: int) -> None:
        if number > 2:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        hub.fetch(at("step1"), on_bytes=stop)
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_equal_weights_come_once(hub, server):
    hub.fetch(at("step2"))
    hub.fetch(at("main"))
    assert server.count(WEIGHTS) == 1


def test_a_download_into_a_folder_leaves_the_cache_alone(hub, tmp_path):
    folder = hub.fetch(at("step1"), into=tmp_path / "mine")
    assert folder == tmp_path / "mine"
    assert (folder / "model.safetensors").is_file()
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_a_hub_that_limits_requests_is_waited_for_as_long_as_it_says(hub, server, pauses):
    server.limited, server.retry_after = 2, "7"
    hub.files(REPO, "step1")
    assert pauses == [8.0, 8.0], "a second is added by huggingface_hub"


def test_a_limit_that_does_not_end_says_so(hub, server, pauses):
    server.limited = 99
    with pytest.raises(SuiteError, match=r"limits requests \(status 429\).*HF_TOKEN raises"):
        hub.files(REPO, "step1")


def test_what_is_here_is_used_while_the_hub_is_out_of_reach(root, tmp_path, pauses):
    with HubServer(root) as server:
        folder = Hub(server.endpoint, tmp_path / "cache").fetch(at("step1"))
    away = Hub(server.endpoint, tmp_path / "cache")
    assert away.fetch(at("step1")) == folder
    with pytest.raises(SuiteError, match="cannot reach"):
        away.fetch(at("step2"))


def test_unreachable_hub_is_named(tmp_path, monkeypatch, pauses):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
        hub = Hub(endpoint, tmp_path)
        for ask in (lambda: hub.refs(REPO), lambda: hub.fetch(at("main"))):
            with pytest.raises(SuiteError, match=rf"cannot reach {endpoint} for lab/toy.*ConnectE"):
                ask()


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, r"lab/toy is gated: accept its license on .*, then set HF_TOKEN"),
        (500, r"answered 500 for lab/toy.*; try again later"),
    ],
)
def test_hub_that_refuses_or_fails_is_named(hub, server, pauses, status, message):
    server.status = status
    for ask in (lambda: hub.refs(REPO), lambda: hub.fetch(at("main"))):
        with pytest.raises(SuiteError, match=message):
            ask()


LISTED = {"type": "file", "path": "model.safetensors", "size": 5}
NO_LISTINGS = {
    "page": "<html>Log in</html>",
    "deep": "[" * 200_000,
    "no size": json.dumps([{"type": "file", "path": "model.safetensors"}]),
    "lfs": json.dumps([LISTED | {"lfs": "yes"}]),
}


@pytest.mark.parametrize("listing", NO_LISTINGS.values(), ids=NO_LISTINGS)
def test_an_answer_that_is_no_listing_names_who_gave_it(hub, server, listing):
    server.instead["/tree/"] = listing.encode()
    message = "no valid answer for lab/toy at revision main .*check HF_ENDPOINT"
    with pytest.raises(SuiteError, match=message):
        hub.fetch(at("main"))


def test_a_page_in_the_place_of_revisions_names_who_gave_it(hub, server):
    server.instead["/refs"] = b"<html>Log in</html>"
    with pytest.raises(SuiteError, match="no valid answer for lab/toy "):
        hub.refs(REPO)


def test_a_page_in_the_place_of_a_commit_names_who_gave_it(hub, server):
    server.instead["/revision/"] = b"<html>Log in</html>"  # which huggingface_hub asks for
    with pytest.raises(SuiteError, match="no valid answer for lab/toy at revision main"):
        hub.fetch(at("main"))


def test_what_is_here_is_used_where_a_page_answers_for_the_hub(hub, server, tmp_path):
    folder = hub.fetch(at("main"))
    server.instead[""] = b"<html>Log in</html>"
    assert Hub(server.endpoint, tmp_path / "cache").fetch(at("main")) == folder


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_names_the_cache(hub, monkeypatch, number):
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("huggingface_hub.snapshot_download", full)
    message = "the disk of .*cache filled up while fetching lab/toy at revision main; free some"
    with pytest.raises(DiskSpaceError, match=message):
        hub.fetch(at("main"))


def test_environment_names_endpoint_and_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1/")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    assert Hub().endpoint == "http://127.0.0.1:1"
    assert Hub().cache_dir == tmp_path / "hub"
    assert Hub("http://127.0.0.1:2").endpoint == "http://127.0.0.1:2"


def test_telemetry_is_off_once_a_hub_is_built(tmp_path):
    import huggingface_hub.constants

    Hub("http://127.0.0.1:1", tmp_path)
    assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == "1"
    assert huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY is True


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r'pip install "logitbank\[engine\]"'):
        Hub()


def test_importing_suites_imports_neither_torch_nor_huggingface_hub():
    heavy = "{'torch', 'transformers', 'vllm', 'huggingface_hub'}"
    code = f"import sys, logitbank.engine.suites.suites; print(*{heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []

"""The hub's token stays with the hub, whatever an answer names: two servers, one is a trap."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from logitbank.engine.suites.hub import Hub, HubSource
from logitbank.errors import LogitbankError
from logitbank.store import Bank
from logitbank.store.share.hub import HubDataset
from logitbank.store.share.places import place_at

pytest.importorskip("obstore")
pytest.importorskip("huggingface_hub")
TOKEN = "hf_secret"
Answer = tuple[int, dict[str, str], bytes]


class Server:
    """Answers as it is told, and keeps who showed which token for what."""

    def __init__(self, answer: Callable[[str], Answer]) -> None:
        self.seen: list[tuple[str, str | None]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(answer))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def tokens(self) -> set[str | None]:
        return {token for _, token in self.seen}

    def _handler(server, answer: Callable[[str], Answer]) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.seen.append((self.path, self.headers.get("Authorization")))
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, body = answer(self.path)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


@pytest.fixture
def trap() -> Iterator[Server]:
    """Another host: answers everything with an empty list."""
    server = Server(lambda _: (200, {"Content-Type": "application/json"}, b"[]"))
    yield server
    server.close()


@pytest.fixture
def hub(trap: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """A hub that names the trap wherever it can."""

    def answer(path: str) -> Answer:
        kind = {"Content-Type": "application/json"}
        if "/tree/" in path:
            return 200, kind | {"Link": f'<{trap.url}/more>; rel="next"'}, b"[]"
        if "/api/" in path:
            about = {"id": "lab/x", "sha": "0" * 40, "siblings": [{"rfilename": "config.json"}]}
            return 200, kind, json.dumps(about).encode()
        return 307, {"Location": f"{trap.url}{path}"}, b""

    server = Server(answer)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    yield server
    server.close()


def test_the_next_page_of_a_models_files_is_asked_without_the_token(
    hub: Server, trap: Server, tmp_path: Path
) -> None:
    assert Hub(hub.url, tmp_path).files("lab/x", "main") == {}
    assert hub.tokens == {f"Bearer {TOKEN}"}
    assert trap.seen == [("/more", None)]


def test_a_snapshot_takes_no_token_elsewhere(hub: Server, trap: Server, tmp_path: Path) -> None:
    Hub(hub.url, tmp_path)._download(HubSource("lab/x", "main"), ["config.json"])
    assert f"Bearer {TOKEN}" in hub.tokens
    assert trap.tokens == {None}


def test_reading_a_bank_takes_no_token_elsewhere(hub: Server, trap: Server) -> None:
    with pytest.raises(LogitbankError):
        Bank.open("hf://datasets/lab/x")
    place_at("hf://datasets/lab/x").read("zarr.json", limit=100)
    assert hub.tokens == {f"Bearer {TOKEN}"}
    assert len(trap.seen) == 2  # the index, and what was read
    assert trap.tokens == {None}


def test_no_call_of_the_library_takes_the_token_elsewhere(hub: Server, trap: Server) -> None:
    """As where an upload is to be confirmed at an address that the hub names."""
    from huggingface_hub.utils import build_hf_headers, get_session  # type: ignore[attr-defined]

    HubDataset("hf://datasets/lab/x")
    headers = build_hf_headers(token=TOKEN)
    assert headers["authorization"] == f"Bearer {TOKEN}"
    get_session().post(f"{trap.url}/verify", headers=headers)
    get_session().post(f"{hub.url}/api/verify", headers=headers)
    get_session().post(f"{trap.url}/other", headers={"authorization": "Basic of-that-host"})
    assert trap.seen == [("/verify", None), ("/other", "Basic of-that-host")]
    assert hub.seen == [("/api/verify", f"Bearer {TOKEN}")]

"""A small Hugging-Face-like hub on the loopback address, serving a folder tree.

    root/<owner>/<name>/<revision>/<files>

It answers what huggingface_hub asks when it lists branches, lists files and downloads a
snapshot, and keeps the list of requests. Weight files are served as large files, with a SHA-256.
"""

import hashlib
import json
import re
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from tests.support.process_server import byte_range

LARGE = (".safetensors", ".bin")


class HubServer:
    """The server, from construction to `close`, in a thread of its own.

    `gated` repositories show their files and refuse to send them without the token "let-me-in".
    Revisions named in `tags` are tags and no branches. With `status` set, every answer is that.
    Of the requests to come, `limited` are refused with `Retry-After`; of the large files to come,
    `broken` end in the middle and `damaged` have a wrong byte. A large file takes `pause_s` after
    its first byte; `most_at_once` is how many were ever sent side by side, `sent_bytes` what was
    sent of them. `instead` has contents that are sent, with status 200, for paths in which its
    patterns are found, such as a proxy's page.
    """

    def __init__(self, root: Path, *, gated: Collection[str] = ()) -> None:
        self.root, self.gated = root, gated
        self.requests: list[str] = []
        self.tags: set[str] = set()
        self.status: int | None = None
        self.instead: dict[str, bytes] = {}
        self.limited = self.broken = self.damaged = 0
        self.retry_after = "1"
        self.pause_s = 0.0
        self.sending = self.most_at_once = self.sent_bytes = 0
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def use_up(self, what: str) -> bool:
        """One of what is counted down, such as `limited`, if any is left."""
        with self.lock:
            left = getattr(self, what)
            setattr(self, what, max(0, left - 1))
            return bool(left)

    @contextmanager
    def sends(self) -> Iterator[None]:
        with self.lock:
            self.sending += 1
            self.most_at_once = max(self.most_at_once, self.sending)
        try:
            yield
        finally:
            with self.lock:
                self.sending -= 1

    def count(self, pattern: str) -> int:
        """How many requests match a regular expression; they look like `GET /path`."""
        return sum(bool(re.search(pattern, request)) for request in self.requests)


class _RefusedError(Exception):
    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code


def _handler(hub: HubServer) -> type[BaseHTTPRequestHandler]:
    # HTTP/1.0: each connection closes after its answer, so none is left open at the end.
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_HEAD(self) -> None:
            self._answer()

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path}")
            try:
                if hub.use_up("limited"):
                    raise _RefusedError(429, "")
                if hub.status:
                    raise _RefusedError(hub.status, "")
                if page := [hub.instead[each] for each in hub.instead if re.search(each, path)]:
                    self._send(page[0], {})
                    return
                if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/refs", path):
                    self._send_json(_refs(hub, match[1]))
                elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/(.+)", path):
                    self._send_json(_tree(hub, match[1], match[2]))
                elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
                    sha = _commit(_revision(hub, match[1], match[2]))
                    self._send_json({"id": match[1], "sha": sha})
                elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                    self._send_file(match[1], match[2], match[3])
                else:
                    raise _RefusedError(404, "RepoNotFound")
            except _RefusedError as refusal:
                self.send_response(refusal.status)
                self.send_header("X-Error-Code", refusal.code)
                if refusal.status == 429:
                    self.send_header("Retry-After", hub.retry_after)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def _send_json(self, content: object) -> None:
            self._send(json.dumps(content).encode(), {"Content-Type": "application/json"})

        def _send_file(self, repo: str, revision: str, name: str) -> None:
            folder = _revision(hub, repo, revision)
            token = self.headers.get("Authorization")
            if repo in hub.gated and token != "Bearer let-me-in":
                raise _RefusedError(403 if token else 401, "GatedRepo")
            if not (folder / name).is_file():
                raise _RefusedError(404, "EntryNotFound")
            content = (folder / name).read_bytes()
            etag = f'"{_etag(name, content)}"'
            self._send(content, {"ETag": etag, "X-Repo-Commit": _commit(folder)})

        def _send(self, content: bytes, headers: dict[str, str]) -> None:
            size = len(content)
            part = byte_range(self.headers.get("Range"), size)
            span = range(size) if part is None else part
            self.send_response(200 if part is None else 206)
            if part is not None:
                headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{size}"
            headers |= {"Content-Length": str(len(span)), "Accept-Ranges": "bytes"}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            content = content[span.start : span.stop]
            if self.command == "GET" and urlsplit(self.path).path.endswith(LARGE):
                self._send_slowly(content)
            elif self.command == "GET":
                self.wfile.write(content)

        def _send_slowly(self, content: bytes) -> None:
            with hub.sends():
                self.wfile.write(content[:1])
                self.wfile.flush()
                time.sleep(hub.pause_s)
                if hub.use_up("damaged"):
                    content = content[:-1] + bytes([content[-1] ^ 1])
                end = len(content) // 2 if hub.use_up("broken") else len(content)
                hub.sent_bytes += end  # before the client has the last byte
                self.wfile.write(content[1:end])

    return Handler


def _refs(hub: HubServer, repo: str) -> dict[str, object]:
    refs: dict[str, list[dict[str, str]]] = {"branches": [], "tags": []}
    for folder in sorted(_repository(hub, repo).iterdir()):
        kind = "tags" if folder.name in hub.tags else "branches"
        refs[kind].append(
            {"name": folder.name, "ref": f"refs/{folder.name}", "targetCommit": _commit(folder)}
        )
    return {**refs, "converts": []}


def _tree(hub: HubServer, repo: str, revision: str) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = []
    folder = _revision(hub, repo, revision)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        content, name = path.read_bytes(), path.relative_to(folder).as_posix()
        entry: dict[str, object] = {
            "type": "file",
            "path": name,
            "size": len(content),
            "oid": hashlib.sha1(content).hexdigest(),
        }
        if name.endswith(LARGE):
            entry["lfs"] = {"oid": _etag(name, content), "size": len(content), "pointerSize": 134}
        entries.append(entry)
    return entries


def _repository(hub: HubServer, repo: str) -> Path:
    folder = hub.root / repo
    if ".." in repo or not folder.is_dir():
        raise _RefusedError(404, "RepoNotFound")
    return folder


def _revision(hub: HubServer, repo: str, revision: str) -> Path:
    for folder in _repository(hub, repo).iterdir():
        if revision in (folder.name, _commit(folder)):
            return folder
    raise _RefusedError(404, "RevisionNotFound")


def _commit(folder: Path) -> str:
    return hashlib.sha1("/".join(folder.parts[-3:]).encode()).hexdigest()


def _etag(name: str, content: bytes) -> str:
    algorithm = "sha256" if name.endswith(LARGE) else "sha1"
    return hashlib.new(algorithm, content).hexdigest()

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
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".bin")


class HubServer:
    """The server, from construction to `close`, in a thread of its own.

    `gated` repositories show their files and refuse to send them without the token "let-me-in".
    With `digests=False` the listing lacks every SHA-256. With `status` set, every answer is that.
    Of the requests to come, `limited` are refused with `Retry-After`; of the large files to come,
    `broken` end in the middle and `damaged` have a wrong byte. A large file takes `pause_s` after
    its first byte; `most_at_once` is how many were ever sent side by side.

    Without `ranges`, a part that is asked for is answered with the whole file. Of the large
    answers to come, `short` have half of the part that was asked for, `shifted` begin a byte later,
    `overlong` go on to the end of the file, and `changed` have the mark (ETag) of another content.
    With `elsewhere`, large files are sent from a signed address, which refuses `expired` requests
    to come. `instead` has contents that are sent, with status 200, for paths in which its patterns
    are found, such as a proxy's page to log in.
    """

    def __init__(self, root: Path, *, gated: Collection[str] = (), digests: bool = True) -> None:
        self.root, self.gated, self.digests = root, gated, digests
        self.requests: list[str] = []
        self.status: int | None = None
        self.instead: dict[str, bytes] = {}
        self.limited = self.broken = self.damaged = 0
        self.short = self.shifted = self.overlong = self.changed = self.expired = 0
        self.ranges, self.elsewhere = True, False
        self.spans: list[range] = []
        """Bytes of large files, as they were answered."""
        self.tokens_elsewhere: set[str | None] = set()
        self.retry_after = "1"
        self.pause_s = 0.0
        self.sending = self.most_at_once = 0
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
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
                elif match := re.fullmatch(r"/signed/([^/]+/[^/]+)/([^/]+)/(.+)", path):
                    hub.tokens_elsewhere.add(self.headers.get("Authorization"))
                    if hub.use_up("expired"):
                        raise _RefusedError(403, "")
                    self._send_content(_revision(hub, match[1], match[2]), match[3])
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
            if hub.elsewhere and name.endswith(LARGE):
                self._send_away(folder, f"/signed/{repo}/{revision}/{name}?Signature=x", name)
            else:
                self._send_content(folder, name)

        def _send_away(self, folder: Path, path: str, name: str) -> None:
            self.send_response(302)
            self.send_header("Location", hub.endpoint.replace("127.0.0.1", "localhost") + path)
            self.send_header("X-Linked-ETag", f'"{_etag(name, (folder / name).read_bytes())}"')
            self.send_header("X-Linked-Size", str((folder / name).stat().st_size))
            self.send_header("X-Repo-Commit", _commit(folder))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _send_content(self, folder: Path, name: str) -> None:
            content = (folder / name).read_bytes()
            etag = "another" if hub.use_up("changed") else _etag(name, content)
            self._send(content, {"ETag": f'"{etag}"', "X-Repo-Commit": _commit(folder)})

        def _send(self, content: bytes, headers: dict[str, str]) -> None:
            size = len(content)
            large = self.command == "GET" and urlsplit(self.path).path.endswith(LARGE)
            asked = self.headers.get("Range") if hub.ranges else None
            status, span = _range(asked, size)
            if large and status == 206:
                span = self._bent(span, size)
            if large:
                hub.spans.append(span)
            self.send_response(status)
            if status == 206:
                headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{size}"
            headers |= {"Content-Length": str(len(span)), "Accept-Ranges": "bytes"}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if large:
                self._send_slowly(content[span.start : span.stop])
            elif self.command == "GET":
                self.wfile.write(content[span.start : span.stop])

        def _bent(self, span: range, size: int) -> range:
            """Another part than was asked for, where that is wanted."""
            if hub.use_up("short"):
                return span[: len(span) // 2]
            if hub.use_up("shifted"):
                return range(span.start + 1, span.stop)
            return range(span.start, size) if hub.use_up("overlong") else span

        def _send_slowly(self, content: bytes) -> None:
            with hub.sends():
                self.wfile.write(content[:1])
                self.wfile.flush()
                time.sleep(hub.pause_s)
                if hub.use_up("damaged"):
                    content = content[:-1] + bytes([content[-1] ^ 1])
                end = len(content) // 2 if hub.use_up("broken") else len(content)
                self.wfile.write(content[1:end])

    return Handler


def _refs(hub: HubServer, repo: str) -> dict[str, object]:
    branches = [
        {"name": f.name, "ref": f"refs/heads/{f.name}", "targetCommit": _commit(f)}
        for f in sorted(_repository(hub, repo).iterdir())
    ]
    return {"branches": branches, "converts": [], "tags": []}


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
        if hub.digests and name.endswith(LARGE):
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


def _range(header: str | None, size: int) -> tuple[int, range]:
    if header and (match := re.fullmatch(r"bytes=(\d*)-(\d*)", header)):
        first, last = match.groups()
        if first:
            return 206, range(int(first), min(int(last) + 1 if last else size, size))
        if last:
            return 206, range(max(0, size - int(last)), size)
    return 200, range(size)

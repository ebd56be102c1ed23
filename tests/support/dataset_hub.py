"""A Hugging-Face-like hub for dataset repositories.

It implements what huggingface_hub calls to create a repository, list it, upload (regular and large
files) and commit, and what a reader requests over HTTP: files of a revision, large ones by a
redirect, with ranges. Writing needs the token "let-me-in".
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.process_server import CONTROL, ProcessServer, byte_range

LARGE = (".parquet",)
TOKEN = "let-me-in"


class DatasetHub(ProcessServer):
    """The hub, from construction to `close`."""

    module = "tests.support.dataset_hub"

    def behave(self, **how: Any) -> None:
        """Clear the log. `commits`: refuse further commits after this many, with 503."""
        self.control(how)

    def count(self, pattern: str) -> int:
        """Requests like `GET /path` that match."""
        return sum(bool(re.search(pattern, request)) for request in self.logged())


@dataclass
class _Repo:
    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=list)

    def at(self, revision: str) -> tuple[str, dict[str, bytes]]:
        for sha, files in self.commits:
            if sha == revision:
                return sha, files
        if revision != "main":
            raise _RefusedError(404, "RevisionNotFound")
        return self.commits[-1]

    def add(self, files: dict[str, bytes]) -> str:
        sha = hashlib.sha1(repr((len(self.commits), sorted(files))).encode()).hexdigest()
        self.commits.append((sha, files))
        return sha


class _RefusedError(Exception):
    def __init__(self, status: int, code: str = "", body: object = None) -> None:
        self.status, self.code, self.body = status, code, body


@dataclass
class _State:
    repos: dict[str, _Repo] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    how: dict[str, Any] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def repo(self, name: str) -> _Repo:
        if name not in self.repos:
            raise _RefusedError(404, "RepoNotFound")
        return self.repos[name]


def _create(state: _State, body: Any) -> object:
    name = f"{body['organization']}/{body['name']}"
    if name in state.repos:
        raise _RefusedError(409, body={"url": f"/datasets/{name}"})
    state.repos[name] = _Repo()
    state.repos[name].add({".gitattributes": b"*.parquet filter=lfs\n"})
    return {"url": f"/datasets/{name}"}


def _info(state: _State, name: str, revision: str = "main") -> object:
    return {"id": name, "sha": state.repo(name).at(revision)[0]}


def _tree(state: _State, name: str, revision: str) -> object:
    _, files = state.repo(name).at(revision)
    return [
        {
            "type": "file",
            "path": path,
            "size": len(data),
            "oid": _blob(data),
            **({"lfs": {"oid": _sha256(data), "size": len(data), "pointerSize": 134}}
               if path.endswith(LARGE) else {}),
        }
        for path, data in sorted(files.items())
    ]  # fmt: skip


def _preupload(state: _State, name: str, revision: str, body: Any) -> object:
    _, files = state.repo(name).at(revision)
    return {
        "files": [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                "shouldIgnore": False,
                "oid": _blob(files[file["path"]]) if file["path"] in files else None,
            }
            for file in body["files"]
        ]
    }


def _batch(state: _State, base: str, name: str, body: Any) -> object:
    def action(oid: str) -> dict[str, object]:
        if f"{name}/{oid}" in state.large:
            return {}
        return {"actions": {"upload": {"href": f"{base}/large/{name}/{oid}"}}}

    return {"transfer": "basic", "objects": [o | action(o["oid"]) for o in body["objects"]]}


def _commit(state: _State, name: str, lines: list[Any]) -> object:
    with state.lock:
        repo = state.repo(name)
        head, files = repo.at("main")
        new = dict(files)
        done = sum("/commit/" in request for request in state.log)
        if done > state.how.get("commits", done):
            raise _RefusedError(503)
        for line in lines:
            key, value = line["key"], line["value"]
            if key == "header" and value.get("parentCommit", head) != head:
                raise _RefusedError(412)
            if key == "file":
                new[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                new[value["path"]] = state.large[f"{name}/{value['oid']}"]
            elif key == "deletedFile":
                del new[value["path"]]
        sha = repo.add(new)
    return {"commitUrl": f"/datasets/{name}/commit/{sha}", "commitOid": sha}


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


_REPO = r"([^/]+/[^/]+)"
_GET: list[tuple[str, Callable[..., object]]] = [
    (rf"/api/datasets/{_REPO}", _info),
    (rf"/api/datasets/{_REPO}/revision/([^/]+)", _info),
    (rf"/api/datasets/{_REPO}/tree/([^/]+)", _tree),
]


def _handler(state: _State) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # a body would wait 40 ms for the receipt of its headers

        def do_GET(self) -> None:
            self._answer(self._get)

        def do_POST(self) -> None:
            self._answer(self._post)

        def do_PUT(self) -> None:
            self._answer(self._put)

        def _answer(self, method: Callable[[str, bytes], None]) -> None:
            path = unquote(urlsplit(self.path).path)
            body = self._body()
            if path != CONTROL:
                state.log.append(f"{self.command} {path}")
            try:
                method(path, body)
            except _RefusedError as refusal:
                body = b"" if refusal.body is None else json.dumps(refusal.body).encode()
                self._send(body, status=refusal.status, **{"X-Error-Code": refusal.code})

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            pieces = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)

        def _get(self, path: str, _: bytes) -> None:
            if path == CONTROL:
                self._json(state.log)
                return
            for pattern, answer in _GET:
                if match := re.fullmatch(pattern, path):
                    self._json(answer(state, *match.groups()))
                    return
            if match := re.fullmatch(rf"/datasets/{_REPO}/resolve/([^/]+)/(.+)", path):
                self._file(*match.groups())
            elif path.startswith("/large/"):
                self._data(state.large[path.removeprefix("/large/")])
            else:
                raise _RefusedError(404, "RepoNotFound")

        def _file(self, name: str, revision: str, path: str) -> None:
            _, files = state.repo(name).at(revision)
            if path not in files:
                raise _RefusedError(404, "EntryNotFound")
            if path.endswith(LARGE):
                self._send(b"", status=302, Location=f"/large/{name}/{_sha256(files[path])}")
            else:
                self._data(files[path])

        def _data(self, data: bytes) -> None:
            headers = {"ETag": f'"{_sha256(data)}"'}
            span = byte_range(self.headers.get("Range"), len(data))
            if span is None:
                self._send(data, **headers)
                return
            headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{len(data)}"
            self._send(data[span.start : span.stop], status=206, **headers)

        def _post(self, path: str, body: bytes) -> None:
            if path == CONTROL:
                state.log.clear()
                state.how = json.loads(body)
                self._json([])
                return
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise _RefusedError(401)
            if match := re.fullmatch(rf"/api/datasets/{_REPO}/commit/main", path):
                self._json(_commit(state, match[1], [json.loads(x) for x in body.splitlines()]))
                return
            content = json.loads(body)
            if path == "/api/repos/create":
                self._json(_create(state, content))
            elif path == "/api/validate-yaml":
                self._json({"errors": [], "warnings": []})
            elif match := re.fullmatch(rf"/api/datasets/{_REPO}/preupload/([^/]+)", path):
                self._json(_preupload(state, match[1], match[2], content))
            elif match := re.fullmatch(rf"/datasets/{_REPO}\.git/info/lfs/objects/batch", path):
                base = f"http://{self.headers['Host']}"
                self._json(_batch(state, base, match[1], content))
            else:
                raise _RefusedError(404)

        def _put(self, path: str, body: bytes) -> None:
            name = path.removeprefix("/large/")
            if _sha256(body) != name.rpartition("/")[2]:
                raise _RefusedError(400)
            state.large[name] = body
            self._send(b"")

        def _json(self, content: object) -> None:
            self._send(json.dumps(content).encode(), **{"Content-Type": "application/json"})

        def _send(self, body: bytes, status: int = 200, **headers: str) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(_State()))
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

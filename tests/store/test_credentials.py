"""Passwords in URLs and in variables are neither shown nor stored."""

import contextlib
import io
import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import logitbank
from logitbank.errors import LogitbankError
from logitbank.store import Bank
from logitbank.store.share.push import pull, push
from logitbank.wording import without_credentials
from tests.support.command import Call
from tests.support.file_server import FileServer
from tests.support.made_once import made_once
from tests.support.small_banks import bank_of

pytest.importorskip("obstore")
pytest.importorskip("huggingface_hub")

POISON = "pw5ecret"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"https://me:{POISON}@host/b", "https://host/b"),
        (f"https:/me:{POISON}@host/b", "https:/host/b"),
        (f"http://{POISON}@host:80/b", "http://host:80/b"),
        (f"https://me:{POISON}@x@host/b", "https://host/b"),
        (f"s3://AK:{POISON}/+=@bucket/b", "s3://bucket/b"),
        (f"s3://bucket/b?aws_secret_access_key={POISON}&x=1", "s3://bucket/b?…"),
        (f"for url 'https://h/b?X-Amz-Signature={POISON}' (1)", "for url 'https://h/b?…' (1)"),
        (f"https://h/b#access_token={POISON}", "https://h/b#…"),
        ("hf://datasets/lab/bank@v1", "hf://datasets/lab/bank@v1"),
        ("http://host:8080/a@b", "http://host:8080/a@b"),
        ("Use a folder, https://, s3:// or hf://.", "Use a folder, https://, s3:// or hf://."),
    ],
)
def test_a_text_keeps_its_urls_without_credentials(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


@made_once
def public(path: Path) -> None:
    push(bank_of(path.with_name("made"), 0).path, path)


@pytest.fixture
def published(tmp_path: Path, cache: Path) -> Path:
    return public(tmp_path / "public")


def poisoned(url: str, password: str = POISON) -> str:
    return url.replace("://", f"://me:{password}@")


def clean(folder: Path) -> bool:
    paths = [*folder.rglob("*")]
    files = [path for path in paths if path.is_file()]
    assert files
    named = any(POISON in str(path.relative_to(folder)) for path in paths)
    return not (named or any(POISON.encode() in file.read_bytes() for file in files))


def test_a_bank_at_a_url_with_a_password_does_not_show_it(
    published: Path, tmp_path: Path, cache: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileServer(published) as server:
        monkeypatch.chdir(tmp_path)  # where a command would write that took the URL for a folder
        url = poisoned(server.url)
        bank = Bank.open(url, rows=True)
        assert bank.url == server.url
        assert POISON not in f"{bank!r}{bank.address}"
        assert Bank.open(server.url, prompts=[]).path == bank.path, "one copy for both"
        with pytest.raises(LogitbankError) as error:
            bank.scan("nothing")
        assert POISON not in str(error.value)
        pull(url, tmp_path / "pulled")
        for command in (
            ["info", url],
            ["info", url, "--provenance"],
            ["pull", url, tmp_path / "second"],
            ["push", url, tmp_path / "third"],
            ["report", url, "--out", tmp_path / "page.html"],
            ["analyze", "options", url],
            ["show", url, "nothing"],
            ["export", url, "--out", tmp_path / "x"],
            ["verify", url],
            ["describe", url, "--title", "x"],
            ["merge", tmp_path / "m", url],
            ["merge", url, published],
            ["push", published, url],
            ["pull", published, url],
            ["shrink", url, tmp_path / "s", "--keep", "options"],
            ["shrink", published, url, "--keep", "options"],
            ["extract", url],
        ):
            _, out, err = call(*command)
            assert POISON not in out + err, command
        assert (tmp_path / "pulled" / "zarr.json").exists()
    for place in (cache, tmp_path):
        assert clean(place)


@pytest.mark.parametrize("password", [f"my {POISON}", f"{POISON} 1", f"1 {POISON} @"])
def test_a_password_with_blanks_stands_nowhere(
    published: Path, tmp_path: Path, cache: Path, call: Call, password: str
) -> None:
    with FileServer(published) as server:
        url = poisoned(server.url, password)
        assert Bank.open(url).url == server.url
        for command in (["info", url], ["report", url, "--out", tmp_path / "page.html"]):
            code, out, err = call(*command)
            assert code == 0, err
            assert POISON not in out + err
    assert clean(cache)
    assert clean(tmp_path)


READERS: dict[str, Callable[[str, Path], object]] = {
    "open": lambda url, _: Bank.open(url),
    "pull": lambda url, to: pull(url, to / "pulled"),
    "push": lambda url, to: push(to / "public", url),
    "report": lambda url, to: logitbank.report(url, out=to / "page"),
    "create": lambda url, _: Bank.create(url),
}
ADDRESSES = (
    f"https://me:{POISON}@127.0.0.1:9/bank",
    f"http://me:{POISON}@127.0.0.1:9/bank",
    f"http://me:{POISON}@127.0.0.1:9/bank?key={POISON}",
    f"http://127.0.0.1:9/bank?key={POISON}",
    f"http://127.0.0.1:9/bank#{POISON}",
    f"http://me:{POISON}@[bad/bank",
    f"s3://AK:{POISON}@bucket/bank",
    f"s3://AK:{POISON}/x@bucket/bank",
    f"s3://bucket/bank?secret={POISON}",
    f"hf://me:{POISON}@datasets/lab/bank",
    f"hf://datasets/lab/bank?token={POISON}",
    f"ftp://me:{POISON}@host/bank",
    f"https:/me:{POISON}@127.0.0.1:9/bank",
    f"http://me:a {POISON}@127.0.0.1:9/bank",
    f"http://me:{POISON} b@127.0.0.1:9/my bank",
    f"http://a {POISON}@127.0.0.1:9/bank",
    f"http://me:a\u00a0{POISON}\t@127.0.0.1:9/bank",
    f"s3://AK:a {POISON}@bucket/bank",
    f"ftp://me:{POISON} b@host/bank",
    f"hf://me:a {POISON}@datasets/lab/bank",
)


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def complaint(call: Callable[[], object]) -> str:
    """Message and traceback of an error."""
    text = io.StringIO()
    with contextlib.redirect_stderr(text), contextlib.redirect_stdout(text):
        try:
            call()
        except LogitbankError as error:
            text.write("".join(traceback.format_exception_only(error)))
            cause = None if error.__suppress_context__ else error.__context__
            text.write(f"{error.__cause__} {cause}")
        else:
            raise AssertionError("it was accepted")
    return text.getvalue()


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_reader_of_a_url_shows_its_password_in_an_error(
    published: Path, tmp_path: Path, address: str, quick_retries: None
) -> None:
    for name, read in READERS.items():
        assert POISON not in complaint(lambda read=read: read(address, tmp_path)), name  # type: ignore[misc]


@pytest.mark.parametrize(
    ("url", "environment"),
    [
        ("hf://datasets/lab/bank", {"HF_ENDPOINT": f"http://me:{POISON}@127.0.0.1:9"}),
        ("hf://datasets/lab/bank", {"HF_ENDPOINT": f"me:{POISON}@127.0.0.1:9"}),
        ("hf://datasets/lab/bank", {"HF_TOKEN": f"{POISON}\nx"}),
        ("hf://datasets/lab/bank", {"HF_TOKEN": f"ü{POISON}"}),
        ("s3://bucket/bank", {"AWS_ENDPOINT_URL": f"http://me:{POISON}@127.0.0.1:9"}),
        ("s3://bucket/bank", {"AWS_ENDPOINT_URL": f"me:{POISON}@127.0.0.1:9"}),
        ("s3://bucket/bank", {"AWS_ENDPOINT_URL": f"http://me:{POISON}@[x"}),
        ("https://127.0.0.1:9/b", {"HTTPS_PROXY": f"http://me:{POISON}@127.0.0.1:9"}),
        ("https://127.0.0.1:9/b", {"HTTPS_PROXY": f"me:{POISON}@x:y:z"}),
        ("s3://bucket/bank", {"HTTPS_PROXY": f"nothing://me:{POISON}@x"}),
    ],
)
def test_no_reader_shows_passwords_of_variables(
    published: Path,
    tmp_path: Path,
    url: str,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    quick_retries: None,
) -> None:
    for name in [n for n in os.environ if n.startswith(("AWS_", "HF_TOKEN", "HF_ENDPOINT"))]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": POISON,
        "AWS_REGION": "us-east-1",
        **environment,
    }.items():
        monkeypatch.setenv(name, value)
    for reader in ("open", "pull", "push"):
        if url.startswith("https") and reader == "push":
            continue
        assert POISON not in complaint(lambda reader=reader: READERS[reader](url, tmp_path))  # type: ignore[misc]

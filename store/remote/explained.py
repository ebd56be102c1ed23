"""What obstore and web servers refuse, as one error that names the URL and the next step."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from logitbank.errors import RemoteError
from logitbank.store.remote.web import WebError

_NO_ACCESS = ("UnauthenticatedError", "PermissionDeniedError")
_REFUSALS = (*_NO_ACCESS, "NotSupportedError")


class RefusedError(RemoteError):
    """The place is there and does not give this object, or no part of it."""


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turn obstore's errors into one that names the URL and the next step."""
    try:
        yield
    except WebError as error:
        raise _as_remote(url, error.kind, str(error)) from error
    except Exception as error:
        if not type(error).__module__.startswith("obstore"):
            raise
        raise _as_remote(url, type(error).__name__, str(error)) from error


def _as_remote(url: str, kind: str, text: str) -> RemoteError:
    refuses = kind in _REFUSALS or re.search(r"status code: 416\b|InvalidRange", text)
    return (RefusedError if refuses else RemoteError)(_message(url, kind, text))


def _message(url: str, kind: str, text: str) -> str:
    said = text.split("\n\nDebug source")[0].strip()
    if kind in _NO_ACCESS:
        return f"{url} refuses access; {_sign_in(url)}"
    if kind == "NotSupportedError":
        return (
            f"the server of {url} does not answer range requests, so parts of objects cannot be"
            " read in place; run `logitbank pull URL FOLDER` and use the folder"
        )
    if code := re.search(r"<Code>(\w+)</Code>", said):
        reason = code[1]
    elif status := re.search(r"status code: (\d+ [A-Za-z ]+)", said):
        reason = status[1].strip()
    elif "error sending request" in said:
        reason = "no connection"
    elif "body error" in said:
        reason = "the answer broke off"
    else:
        reason = said.splitlines()[0][:200] if said else kind
    return (
        f"{url} cannot be reached or answers wrongly ({reason}); check the address and the network"
        " and run the same command again: what arrived is kept"
    )


def _sign_in(url: str) -> str:
    if url.startswith("s3:"):
        return (
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=false to use"
            " the rights of this machine"
        )
    if url.startswith("hf:"):
        return "set HF_TOKEN, or run `hf auth login`"
    return "ask its publisher for an address that you may read"

"""What a hub's refusals mean, in one line each that names the next step."""

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from logitbank.errors import DiskSpaceError, SuiteError


class At(Protocol):
    """A hub as far as its messages name it."""

    @property
    def endpoint(self) -> str: ...
    @property
    def cache_dir(self) -> Path: ...
    @property
    def offline(self) -> bool: ...


@contextmanager
def explained(hub: "At", repo: str, revision: str | None = None) -> Iterator[None]:
    """Turn what huggingface_hub raises into one line that names the next step."""
    from huggingface_hub import errors

    what = repo if revision is None else f"{repo} at revision {revision}"
    try:
        yield
    except errors.GatedRepoError as error:
        raise SuiteError(_gated(hub, repo, error)) from error
    except errors.RepositoryNotFoundError as error:
        raise SuiteError(
            f"repository {repo!r} is not on {hub.endpoint}, or is private; `logitbank suites` "
            "lists known ones, and HF_TOKEN opens private ones"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise SuiteError(
            f"{repo} has no revision {revision!r}; choose one of its branches on "
            f"{hub.endpoint}/{repo}, or a series that `logitbank suites` lists"
        ) from error
    except errors.HFValidationError as error:
        raise SuiteError(f"{repo!r} is no repository name; use owner/name") from error
    except errors.LocalEntryNotFoundError as error:
        if hub.offline:
            raise SuiteError(offline_message(hub, f"all files of {what}")) from error
        if isinstance(error.__cause__, errors.HfHubHTTPError):
            raise _refused(hub, what, error.__cause__) from error
        raise _unreachable(hub, what, error.__cause__ or error) from error
    except errors.HfHubHTTPError as error:
        raise _refused(hub, what, error) from error
    except json.JSONDecodeError as error:
        raise _no_hub(hub, what, error) from error
    except (transport(), ConnectionError, errors.XetDownloadError) as error:
        raise _unreachable(hub, what, error) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):  # or the user's share of the disk
            raise
        raise DiskSpaceError(
            f"the disk of {hub.cache_dir} filled up while fetching {what}; "
            "free some of it, set HF_HOME to a folder on a larger one, or use --disk-budget"
        ) from error


@contextmanager
def read_as_listing(hub: "At", what: str) -> Iterator[None]:
    """Meanwhile, what a hub told of its files is read: refused where it is of another form."""
    try:
        yield
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _no_hub(hub, what, error) from error


def _no_hub(hub: "At", what: str, error: BaseException) -> SuiteError:
    return SuiteError(
        f"what {hub.endpoint} answered for {what} is no answer of a hub ({type(error).__name__}); "
        "a proxy or a page to log in may stand in between: open the address in a browser, and "
        "check HF_ENDPOINT"
    )


def _gated(hub: "At", repo: str, error: Any) -> str:
    where = f"{hub.endpoint}/{repo}"
    if error.response.status_code == 403:
        return (
            f"{repo} is gated, and this token has no access: accept its licence on {where} "
            "with the token's account, and wait where its authors grant access by hand"
        )
    return (
        f"{repo} is gated: accept its licence on {where} and set HF_TOKEN, or run `hf auth login`"
    )


def _refused(hub: "At", what: str, error: Any) -> SuiteError:
    status = error.response.status_code
    if status in (401, 403):
        return SuiteError(
            f"{hub.endpoint} refused access to {what} (status {status}): accept the licence "
            "on the model page and set HF_TOKEN to a valid token"
        )
    if status == 429:
        return SuiteError(
            f"{hub.endpoint} limits requests (status 429) and did so to the end for {what}; "
            "the same command goes on later; HF_TOKEN raises the limit"
        )
    return SuiteError(f"{hub.endpoint} answered {status} for {what}; try again later")


def _unreachable(hub: "At", what: str, error: BaseException) -> SuiteError:
    return SuiteError(
        f"cannot reach {hub.endpoint} for {what} ({type(error).__name__}); check the network "
        "and HF_ENDPOINT, or set HF_HUB_OFFLINE=1 to use what was fetched before"
    )


def offline_message(hub: "At", what: str) -> str:
    """What is absent from the cache, where nothing may be asked."""
    return (
        f"{what} are not in the cache {hub.cache_dir} and HF_HUB_OFFLINE is set; "
        "run `logitbank fetch` while online, or unset HF_HUB_OFFLINE"
    )


def transport() -> type[Exception]:
    """The base of HTTP and connection errors: httpx's or httpx2's, by version."""
    from huggingface_hub import errors

    base: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    return base

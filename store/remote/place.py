"""Where the objects of a URL are: a web server, a bucket, a dataset of the Hub."""

import os
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from logitbank.errors import MissingExtraError, UsageError
from logitbank.store.remote.urls import HUB
from logitbank.store.remote.web import Web

_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


def environment() -> tuple[tuple[str, str], ...]:
    names = ("AWS_", "HF_")
    return tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith(names)))


@lru_cache(maxsize=64)  # a store keeps its connections
def place_of(
    url: str, write: bool, environment: tuple[tuple[str, str], ...]
) -> tuple[Any, Web | None]:
    """obstore's store, and what asks it where it is a web server."""
    try:
        import obstore.store as stores
    except ImportError as error:
        raise MissingExtraError(
            f"{url} needs obstore; install it with `pip install 'logitbank[remote]'`"
        ) from error
    given = dict(environment)
    options: Any = {
        "client_options": {
            "connect_timeout": "10s",
            "read_timeout": "60s",
            "timeout": "2h",  # of a whole object; the default, 30 s, is less than a shard may take
        },
        "retry_config": {
            "max_retries": 4,
            "backoff": {"init_backoff": timedelta(milliseconds=100)},
            "retry_timeout": timedelta(minutes=5),
        },
    }
    if url.startswith("s3:"):
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        endpoint = next((v for k, v in given.items() if k.startswith("AWS_ENDPOINT")), "")
        options["client_options"]["allow_http"] = endpoint.startswith("http://")
        if "AWS_SKIP_SIGNATURE" not in given and not write:
            # A stranger has no credentials: without this, ten seconds are spent asking for some.
            options["skip_signature"] = not any(name in given for name in _CREDENTIALS)
        return stores.S3Store(bucket, prefix=prefix or None, **options), None
    headers: Mapping[str, str] = {}
    if url.startswith("hf:"):
        url, headers = _hub(url)
        options["client_options"]["default_headers"] = headers
    options["client_options"]["allow_http"] = url.startswith("http://")
    options["retry_config"]["max_retries"] = 0  # Web asks again, when the server says
    address = quote(url, safe=":/%[]@")
    store = stores.HTTPStore.from_url(address, **options)
    return store, Web(store, address, headers)


def _hub(url: str) -> tuple[str, Mapping[str, str]]:
    """Address of a dataset repository's files, and what shows who asks."""
    match = HUB.fullmatch(url)
    if not match:
        raise UsageError(f"{url} names no repository; write hf://datasets/owner/name")
    try:
        from huggingface_hub import constants, get_token
    except ImportError as error:
        raise MissingExtraError(
            f"{url} needs huggingface_hub; install it with `pip install 'logitbank[remote]'`"
        ) from error
    endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    token = get_token()
    revision = quote(match["revision"] or "main", safe="")
    address = f"{endpoint}/datasets/{match['repo']}/resolve/{revision}"
    return address, {"Authorization": f"Bearer {token}"} if token else {}

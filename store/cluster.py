"""Join a Ray cluster, or start one on this machine; no other module starts or ends Ray."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from logitbank.errors import MissingExtraError, UsageError


@contextmanager
def joined(address: str) -> Iterator[Any]:
    """The module `ray`, connected to the cluster at `address`.

    `auto` joins the cluster of this machine, or starts one that ends with the block. A process that
    has already joined a cluster, such as a notebook, keeps it.

    Raises
    ------
    MissingExtraError
        Ray is not installed.
    UsageError
        No cluster answers.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read when a cluster starts: nothing is sent
    try:
        import ray
    except ImportError:
        raise MissingExtraError('--ray needs Ray: pip install "logitbank[ray]"') from None
    if ray.is_initialized():
        yield ray
        return
    if address.startswith("ray://"):
        raise UsageError(f"{address} is for Ray's client. Use --ray auto on a cluster machine.")
    with _keep_signals():
        _join(ray, address)
    try:
        yield ray
    finally:
        ray.shutdown()


def _join(ray: Any, address: str) -> None:
    # Output of workers goes to the bank's log, not over a progress bar.
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address != "auto":
            _connect(address)  # Ray itself tries for minutes
        ray.init(address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        if address == "auto" and isinstance(error, ConnectionError):
            ray.init("local", include_dashboard=False, **quiet)
            return
        reason = f"{error}".strip().splitlines()[0]
        raise UsageError(
            f"No Ray cluster can be joined at {address!r} ({reason}). Use auto, or the HOST:PORT of"
            " a cluster of this machine (`ray start --address=HOST:PORT`)."
        ) from error


def _connect(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise ValueError("it is not HOST:PORT")
    socket.create_connection((host, int(port)), timeout=10).close()


@contextmanager
def _keep_signals() -> Iterator[None]:
    """Restore the handler of SIGTERM, which Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

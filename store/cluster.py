"""Join a Ray cluster, or start one on this machine. The only place that starts or ends Ray here."""

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

    `auto` joins the cluster that this machine belongs to, else starts one here, which ends with
    the block. A process that has joined a cluster before, such as a notebook, stays there.

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
        raise UsageError(
            f"{address} is for Ray's client; run this on a machine of the cluster, with --ray auto"
        )
    with _own_signals():
        _join(ray, address)
    try:
        yield ray
    finally:
        ray.shutdown()


def _join(ray: Any, address: str) -> None:
    # What workers print goes to the bank's log, not over a progress bar.
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address != "auto":
            _reach(address)  # Ray itself asks for minutes
        ray.init(address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        if address != "auto" or not isinstance(error, ConnectionError):
            first = f"{error}".strip().splitlines()[0]
            raise UsageError(
                f"no Ray cluster can be joined at {address!r} ({first}); give HOST:PORT of one"
                " that this machine belongs to (`ray start --address=HOST:PORT`), or auto"
            ) from error
        ray.init("local", include_dashboard=False, **quiet)


def _reach(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise ValueError("it is no HOST:PORT")
    socket.create_connection((host, int(port)), timeout=10).close()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray puts its own handler of SIGTERM in the place of whatever was there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

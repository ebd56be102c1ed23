"""A Ray cluster that is played in this process: `test_ray` has real ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class PlayedCluster:
    """As much of Ray as work on deposits asks of a cluster that is joined: three CPUs."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self) -> None:
        self.started: list[int] = []
        self._tasks: list[Any] = []

    @contextmanager
    def joined(self, _: str) -> Iterator["PlayedCluster"]:
        yield self

    def remote(self, **_: object) -> Any:
        return lambda function: SimpleNamespace(remote=lambda *a: self._start(function, *a))

    def _start(self, function: Any, *arguments: Any) -> int:
        self._tasks.append((function, arguments))
        self.started.append(len(self._tasks) - 1)
        return self.started[-1]

    def put(self, value: Any) -> Any:
        return value

    def get(self, reference: int) -> Any:
        function, arguments = self._tasks[reference]
        try:
            return function(*arguments)
        except RayError:
            raise
        except Exception as error:
            raise RayTaskError(error) from error

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

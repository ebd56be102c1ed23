"""Real Ray clusters of several nodes on this machine."""

import faulthandler
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.paths import ROOT

STORE_BYTES = 80 * 2**20


@contextmanager
def ray_cluster(nodes: int, **runtime_env: object) -> Iterator[Any]:
    """A head that takes no work, and nodes of one CPU each. This process has joined it."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    # A cluster that starts no worker would be waited for without end.
    faulthandler.dump_traceback_later(600, exit=True)
    before = signal.getsignal(signal.SIGTERM)
    head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(nodes):
            add_node(cluster)
        of_tests: Mapping[str, object] = {"env_vars": {"PYTHONPATH": str(ROOT)}}  # not installed
        ray.init(
            cluster.address,
            log_to_driver=False,
            logging_level="ERROR",
            runtime_env={**of_tests, **runtime_env},
        )
        signal.signal(signal.SIGTERM, before)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        faulthandler.cancel_dump_traceback_later()


def add_node(cluster: Any) -> Any:
    """A further node; the cluster no longer counts those that an earlier test killed."""
    node = cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
    cluster.wait_for_nodes(timeout=600)
    return node

"""Drawing in a process of its own, because V8 ends its process if virtual memory is limited."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from logitbank.errors import DrawingError

CHILD = """
import base64, json, sys, vl_convert
done = [getattr(vl_convert, name)(*args, **options) for name, args, options in json.load(sys.stdin)]
coded = [each if isinstance(each, bytes) else each.encode() for each in done]
json.dump([base64.b64encode(each).decode() for each in coded], sys.stdout)
"""
Call = tuple[str, Sequence[Any], dict[str, Any]]
"""A function of vl_convert, its arguments, and its options."""


def draw(calls: Sequence[Call]) -> list[bytes]:
    """Results of functions of vl_convert.

    Raises
    ------
    DrawingError
        The process ended without a result.
    """
    from base64 import b64decode

    command = [sys.executable, "-P", "-c", CHILD]
    done = subprocess.run(command, input=json.dumps(calls).encode(), capture_output=True)
    if done.returncode < 0:
        raise DrawingError(
            f"Charts cannot be drawn: the process ended with signal {-done.returncode}. Drawing "
            "reserves 128 GB of virtual memory; lift its limit with `ulimit -v unlimited`."
        )
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise DrawingError(f"Charts cannot be drawn: {''.join(last)}.")
    return [b64decode(each) for each in json.loads(done.stdout)]

"""`logitbank` in a process of its own, with the tests' workers and empty charts."""

import os
import sys

from logitbank.cli.main import main
from tests.support import preloaded
from tests.support.drawing import drawn_once

if __name__ == "__main__":
    if os.isatty(0):
        os.login_tty(os.dup(0))
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", 1, "utf-8", closefd=False) for n in (1, 2))
    drawn_once()
    if preloaded.SERVERS in os.environ:
        preloaded.processes_from_servers()
    sys.argv[0] = "logitbank"
    main()

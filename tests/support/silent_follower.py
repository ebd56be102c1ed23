"""A follower without an engine: does all that it is asked, and ends in the middle of a score.

`python -m tests.support.silent_follower DESCRIPTOR`, in place of the real one.
"""

import sys
from multiprocessing.connection import Connection

from logitbank.engine.workers.ranks.requests import Done, Load, Loss, Score

if __name__ == "__main__":
    connection: "Connection[Done | Loss, object]" = Connection(int(sys.argv[1]))
    connection.recv()
    while True:
        match connection.recv():
            case Score():
                sys.exit(7)
            case Load(checkpoint="refused"):
                connection.send(Loss("rank 1: refused"))
            case _:
                connection.send(Done())

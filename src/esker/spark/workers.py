"""Spark's daemon of Python workers, which says nothing when a worker has nobody left to answer.

    spark.python.daemon.module=esker.spark.workers

Spark closes the connection to a worker as soon as it has what it needs: the plan of a source, or the rows of a `limit`.
The worker then cannot flush its last bytes, which nobody waits for, and Spark's daemon prints the traceback of a broken
pipe in the middle of a healthy run. Here such a worker just ends. Everything else is as in `pyspark.daemon`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from socket import socket

Worker = Callable[["socket", bool], int]

_ENDED = 1  # what the daemon takes as: this worker is not used again


def quiet(worker: Worker) -> Worker:
    """A worker that ends, without a traceback, when its connection was closed."""

    @wraps(worker)
    def run(sock: socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return _ENDED

    return run


def main() -> None:
    from pyspark import daemon

    setattr(daemon, "worker", quiet(daemon.worker))  # noqa: B010 a function of its type that is not that very one
    daemon.manager()


if __name__ == "__main__":
    main()

"""Spark's Python processes, which say nothing when there is nobody left to answer.

Spark keeps the processes that plan a source or a sink, and closes their connections when a session ends. Each then
fails to flush an answer that nobody waits for, and Spark's daemon prints the traceback of a broken pipe at the end of a
healthy run. That part of the daemon cannot be set, but it looks for its function `worker` each time it uses it. So a
process in which our source is loaded gets one that just ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from socket import socket

Worker = Callable[["socket", bool], int]

_DAEMON: Final = "pyspark.daemon"
_ENDED: Final = 1  # what the daemon takes as: this process is not used again


def of_spark() -> ModuleType | None:
    """The main module of this process where it is one of Spark's own, else None."""
    main = sys.modules["__main__"]
    started_as = main.__spec__
    return main if started_as is not None and started_as.name == _DAEMON else None


def end_quietly(main: ModuleType | None) -> None:
    """Lets a process of Spark's end without a traceback when its connection was closed. None: this is none of them."""
    worker: Worker | None = getattr(main, "worker", None)
    if main is not None and worker is not None:
        setattr(main, "worker", quiet(worker))  # noqa: B010 a module has no such attribute that types know


def quiet(worker: Worker) -> Worker:
    @wraps(worker)
    def run(sock: socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return _ENDED

    return run

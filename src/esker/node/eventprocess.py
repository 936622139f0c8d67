"""The node's side of the worker that turns segments into columns (eventworker.py).

Any thread may ask; one question is answered at a time, each in a fraction of a second. A worker that died is started
again by the next question. What it knew of a reader it learns again from the segment, so whoever got no answer just
asks once more.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import count, takewhile
from threading import Lock
from typing import IO

from esker.engine.machine import Machine
from esker.errors import EskerError
from esker.node.eventwire import Answer, Failed, Learn, LeaveEvents, PipeClosed, Request, receive_answer, send

_CLOSE_S = 5.0


class WorkerLost(EskerError):
    """The worker died before it answered, or could not be started."""


class WorkerFailed(EskerError):
    """The worker could not do what was asked; it says why."""


class EventProcess:
    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._machine: Machine | None = None
        self._topic = self._router = 0  # the last numbers that the worker was told the names of
        self.cursors = count(1)
        self.started = 0

    def know(self, machine: Machine) -> None:
        """What numbers stand for is found here from now on."""
        self._machine = machine

    @property
    def pid(self) -> int | None:
        process = self._process
        return None if process is None else process.pid

    def ask(self, request: Request) -> tuple[Answer, bytes]:
        """Raises WorkerLost and WorkerFailed."""
        with self._lock:
            process = self._running()
            try:
                told, answers = _pipes(process)
                self._tell_names(told)
                send(told, request)
                answer, data = receive_answer(answers)
            except PipeClosed as error:
                self._end(process)
                raise WorkerLost("the worker that reads events has died; it is started again when needed") from error
        if isinstance(answer, Failed):
            raise WorkerFailed(answer.why)
        return answer, data

    def leave(self, cursor: int) -> None:
        """A reader has what it wants. Asks nothing, and starts nothing."""
        with self._lock:
            if self._process is not None:
                try:
                    send(_pipes(self._process)[0], LeaveEvents(cursor))
                except PipeClosed:
                    self._end(self._process)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._end(self._process)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise WorkerLost("the node is stopping")
        if self._process is None:
            self._topic = self._router = 0
            try:
                self._process = subprocess.Popen(
                    # -P: nothing that lies in the working directory is imported
                    [sys.executable, "-P", "-m", "esker.node.eventworker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            except OSError as error:
                raise WorkerLost(f"the worker that reads events could not be started: {error}") from error
            self.started += 1
        return self._process

    def _tell_names(self, pipe: IO[bytes]) -> None:
        """Numbers only rise, so what is new is at the end."""
        if self._machine is None:
            return
        # Copies: the loop may add to these at any moment.
        topics, routers = list(self._machine.topics.values()), list(self._machine.routers.numbers.values())
        new_topics = list(takewhile(lambda topic: topic.number > self._topic, reversed(topics)))
        new_routers = list(takewhile(lambda router: router.number > self._router, reversed(routers)))
        if new_topics or new_routers:
            send(
                pipe,
                Learn(
                    [(topic.number, topic.name) for topic in new_topics],
                    [(router.number, router.name, router.dest) for router in new_routers],
                ),
            )
            self._topic = max(self._topic, *(topic.number for topic in new_topics), 0)
            self._router = max(self._router, *(router.number for router in new_routers), 0)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """It ends by itself when its pipe does, unless something is wrong with it."""
        self._process = None
        for pipe in _pipes(process):
            try:
                pipe.close()
            except OSError:  # what could not be written is for nobody now
                continue
        try:
            process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout

"""Adding jobs of many clients in one step.

Most commands of a busy broker are plain ADDJOBs, from many connections at once and often to the same queue. Each alone
costs the engine a few microseconds, most of it once per command and not per job. So chunks of nothing but plain ADDJOBs
to one queue are gathered during a turn of the loop, and executed together at its end.

Nobody can tell: no reply of this turn has left yet, so between connections there is no order to keep. Within one
connection there is: before it runs anything else, what was gathered from it is executed (`flush`). When jobs are
refused together, each is answered for itself.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

from esker.engine import limits
from esker.engine.commands import Enqueue, NewJob
from esker.engine.replies import Added
from esker.errors import EskerError
from esker.fronts.resp.commands.addjob import RETRY_MS, TTL_MS, addjob
from esker.fronts.resp.errors import failed

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection
    from esker.fronts.resp.parser import Arguments
    from esker.fronts.resp.server import RespServer

_NAME = b"ADDJOB"


class Gathering:
    """The chunks of plain ADDJOBs of this turn, by queue."""

    __slots__ = ("_entry", "_queues", "_server", "_size")

    def __init__(self, server: RespServer) -> None:
        self._server = server
        self._entry = server.entries[_NAME]
        self._queues: dict[bytes, list[tuple[Connection, list[Arguments]]]] = {}
        self._size = 0

    def take(self, client: Connection, chunk: list[Arguments]) -> bool:
        """True: `flush` will execute and answer it. False: it holds something else; run it command by command."""
        first = chunk[0]
        if first[0] != _NAME or len(first) != 4 or self._server.leaving:
            return False
        queue = first[1]
        if client.gathered is not None and client.gathered != queue:
            return False  # queues are flushed one after the other, and a client's replies keep its order
        for arguments in chunk:
            if len(arguments) != 4 or arguments[1] != queue or arguments[3] != b"0" or arguments[0] != _NAME:
                return False
        self._size += len(chunk)
        if self._size > limits.ENQUEUE_JOBS_MAX:
            self.flush()
            self._size = len(chunk)
            if len(chunk) > limits.ENQUEUE_JOBS_MAX:
                return False
        chunks = self._queues.get(queue)
        if chunks is None:
            chunks = self._queues[queue] = []
            self._server.schedule_turn()
        chunks.append((client, chunk))
        client.gathered = queue
        client.last_entry = self._entry
        return True

    def flush(self) -> None:
        """Executes what was gathered, and sends the replies behind what the clients had to hear before."""
        queues, self._queues, self._size = self._queues, {}, 0
        for queue, chunks in queues.items():
            began = perf_counter_ns()
            count = self._add(queue, chunks)
            spent = perf_counter_ns() - began
            self._entry.calls += count
            self._entry.ns += spent
            if spent >= self._server.slow_ns * count:
                self._server.took_long(chunks[0][0], chunks[0][1][0], spent)

    def _add(self, queue: bytes, chunks: list[tuple[Connection, list[Arguments]]]) -> int:
        jobs = [NewJob(arguments[2], 0, RETRY_MS, TTL_MS) for _, chunk in chunks for arguments in chunk]
        answers: list[bytes] = []
        try:
            reply = self._server.broker.handle(Enqueue(queue, jobs))
            if type(reply) is Added:
                answers = self._server.ids.added(reply.ids, TTL_MS, RETRY_MS)
        except EskerError as error:
            answers = [failed(self._entry, error) for _ in jobs]
        if not answers:
            answers = [addjob(client, arguments) for client, chunk in chunks for arguments in chunk]
        departure = self._server.departure()
        at = 0
        for client, chunk in chunks:
            count = len(chunk)
            client.gathered = None
            replies = answers[at : at + count]
            at += count
            if departure is None or client.out:
                client.out += replies
                client.send()
            else:
                client.unsettled += 1
                departure.parcels.append((client, replies))
        return len(jobs)

"""Adding jobs of many clients in one step.

Most commands of a busy broker are plain ADDJOBs, from many connections at once and often to the same queue. Each alone
costs the engine a few microseconds, most of it once per command and not per job. So the plain ADDJOBs of one turn of
the loop are gathered by queue and executed together at its end.

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
    from esker.fronts.resp.server import RespServer


class Gathering:
    """The plain ADDJOBs of this turn. `slot` is where in the client's replies the answer belongs."""

    __slots__ = ("_entry", "_queues", "_server")

    def __init__(self, server: RespServer) -> None:
        self._server = server
        self._entry = server.entries[b"ADDJOB"]
        self._queues: dict[bytes, list[tuple[Connection, int, list[bytes]]]] = {}

    def take(self, client: Connection, arguments: list[bytes]) -> bool:
        """True: it will be answered by `flush`. False: it is not plain, run it as any other command."""
        if len(arguments) != 4 or arguments[3] != b"0" or self._server.leaving:
            return False
        out = client.out
        parcel = (client, len(out), arguments)
        queue = self._queues.get(arguments[1])
        if queue is None:
            self._queues[arguments[1]] = [parcel]
        elif len(queue) < limits.ENQUEUE_JOBS_MAX:
            queue.append(parcel)
        else:
            return False
        out.append(b"")
        client.gathered = True
        return True

    def flush(self) -> None:
        """Executes what was gathered."""
        queues, self._queues = self._queues, {}
        for name, parcels in queues.items():
            began = perf_counter_ns()
            self._add(name, parcels)
            spent = perf_counter_ns() - began
            entry = self._entry
            entry.calls += len(parcels)
            entry.ns += spent
            if spent >= self._server.slow_ns * len(parcels):
                client, _, arguments = parcels[0]
                self._server.took_long(client, arguments, spent)

    def _add(self, queue: bytes, parcels: list[tuple[Connection, int, list[bytes]]]) -> None:
        jobs = [NewJob(arguments[2], 0, RETRY_MS, TTL_MS) for _, _, arguments in parcels]
        try:
            reply = self._server.broker.handle(Enqueue(queue, jobs))
        except EskerError as error:
            for client, slot, _ in parcels:
                client.gathered = False
                client.out[slot] = failed(self._entry, error)
            return
        if type(reply) is Added:
            answers = self._server.ids.added(reply.ids, TTL_MS, RETRY_MS)
            for (client, slot, _), answer in zip(parcels, answers, strict=False):
                client.gathered = False
                client.out[slot] = answer
            return
        for client, slot, arguments in parcels:
            client.gathered = False
            client.out[slot] = addjob(client, arguments)

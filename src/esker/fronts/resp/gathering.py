"""Adding jobs of many clients in one step.

Most commands of a busy broker are plain ADDJOBs, from many connections at once and often to the same queue. Each alone
costs the parser and the engine a few microseconds, most of it once per command and not per job. So chunks of nothing
but plain ADDJOBs to one queue are gathered during a turn of the loop, and executed together at its end; `shapes` saves
most of the parsing.

Nobody can tell: no reply of this turn has left yet, so between connections there is no order to keep. Within one
connection there is: before it runs anything else, what was gathered from it is executed (`flush`). When jobs are
refused together, each is answered for itself.

How many are gathered in a turn is bounded (`turns`). What exceeds that, and what a client sends behind its gathered
chunk, is executed in the client's own share of the turn, where `together` still makes one step of many ADDJOBs.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from esker.engine.commands import EnqueueAlike
from esker.engine.replies import Added
from esker.errors import EskerError
from esker.fronts.resp.commands.addjob import addjob, defaults
from esker.fronts.resp.errors import failed
from esker.fronts.resp.shapes import Shapes
from esker.fronts.resp.turns import GATHERED_JOBS_MAX, GATHERED_JOBS_PER_CLIENT_MAX

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection
    from esker.fronts.resp.parser import Arguments
    from esker.fronts.resp.server import RespServer

_NAME: Final = b"ADDJOB"
_TIMEOUT: Final = b"0"


class _Gathered:
    """The jobs for one queue, in the order they came, and how many of them are whose."""

    __slots__ = ("clients", "counts", "payloads")

    def __init__(self) -> None:
        self.clients: list[Connection] = []
        self.counts: list[int] = []
        self.payloads: list[bytes] = []


def _is_odd(client: Connection) -> bool:
    """What it sends is not to be taken for plain commands."""
    parser = client.parser
    return client.careful or client.held or client.queued or client.closing or parser.torn or parser.attention


class Gathering:
    """The plain ADDJOBs of this turn, by queue."""

    __slots__ = ("_entry", "_queues", "_server", "_shapes", "_size")

    def __init__(self, server: RespServer) -> None:
        self._server = server
        self._entry = server.entries[_NAME]
        self._queues: dict[bytes, _Gathered] = {}
        self._size = 0
        self._shapes = Shapes()

    def take_all(self, arrived: list[tuple[Connection, bytes]]) -> None:
        """What all clients have sent: chunks of a known shape are gathered unparsed, the clients see to the others."""
        chunks = [data for _, data in arrived]
        if not self._take_alike(arrived, chunks):
            for client, data in arrived:
                found = None if _is_odd(client) else self._shapes.split(data)
                if found is None or not self._gather(client, *found):
                    client.take(data)
        self._server.bytes_in += sum(map(len, chunks))

    def _take_alike(self, arrived: list[tuple[Connection, bytes]], chunks: list[bytes]) -> bool:
        """The commonest turn of a busy broker: one job from each client, all of one shape. They are split in one go."""
        count = len(chunks)
        shape = self._shapes.known.get(len(chunks[0]))
        if shape is None or shape.jobs != 1 or self._server.leaving or self._size + count > GATHERED_JOBS_MAX:
            return False
        payloads = self._shapes.split_alike(shape, chunks)
        if payloads is None:
            return False
        queue = shape.queue
        clients = [client for client, _ in arrived]
        if any(map(_is_odd, clients)) or len({client for client in clients if client.gathered is None}) < count:
            return False  # or one of them has sent more than this
        for client in clients:
            client.gathered = queue
        gathered = self._queues.get(queue) or self._begin(queue)
        gathered.clients += clients
        gathered.counts += [1] * count
        gathered.payloads += payloads
        self._size += count
        return True

    def _begin(self, queue: bytes) -> _Gathered:
        gathered = self._queues[queue] = _Gathered()
        return gathered

    def take(self, client: Connection, chunk: list[Arguments], data: bytes) -> bool:
        """True: `flush` will execute and answer it. False: it holds something else; run it command by command.

        `data` is what the chunk was parsed from.
        """
        queue = chunk[0][1] if len(chunk[0]) == 4 else b""
        for arguments in chunk:
            if len(arguments) != 4 or arguments[1] != queue or arguments[3] != _TIMEOUT or arguments[0] != _NAME:
                return False
        payloads = [arguments[2] for arguments in chunk]
        self._shapes.learn(queue, payloads, data)
        return self._gather(client, queue, payloads)

    def _gather(self, client: Connection, queue: bytes, payloads: list[bytes]) -> bool:
        """Not if it gathered before: what it sends goes on in its own share, behind what was gathered."""
        count = len(payloads)
        if self._server.leaving or client.gathered is not None or count > GATHERED_JOBS_PER_CLIENT_MAX:
            return False
        if self._size + count > GATHERED_JOBS_MAX:
            return False
        self._size += count
        gathered = self._queues.get(queue) or self._begin(queue)
        gathered.clients.append(client)
        gathered.counts.append(count)
        gathered.payloads += payloads
        client.gathered = queue
        return True

    def flush(self) -> None:
        """Executes what was gathered, and sends the replies behind what the clients had to hear before."""
        queues, self._queues, self._size = self._queues, {}, 0
        for queue, gathered in queues.items():
            began = perf_counter_ns()
            self._answer(gathered, self._add(queue, gathered))
            spent = perf_counter_ns() - began
            count = len(gathered.payloads)
            self._entry.calls += count
            self._entry.ns += spent
            if spent >= self._server.slow_ns * count:
                self._server.took_long(gathered.clients[0], [_NAME, queue, gathered.payloads[0], _TIMEOUT], spent)

    def _add(self, queue: bytes, gathered: _Gathered) -> list[bytes]:
        """The replies, one for each job."""
        payloads = gathered.payloads
        try:
            ttl_ms, retry_ms = defaults(self._server.broker, queue)
            reply = self._server.broker.handle(EnqueueAlike(queue, payloads, retry_ms, ttl_ms))
        except EskerError as error:
            return [failed(self._entry, error) for _ in payloads]
        if type(reply) is Added:
            return self._server.ids.added(reply.ids, ttl_ms, retry_ms)
        owners = [client for client, count in zip(gathered.clients, gathered.counts, strict=True) for _ in range(count)]
        return [
            addjob(client, [_NAME, queue, payload, _TIMEOUT]) for client, payload in zip(owners, payloads, strict=True)
        ]

    def _answer(self, gathered: _Gathered, answers: list[bytes]) -> None:
        departure = self._server.departure()
        entry, seen_at = self._entry, self._server.loop.time()
        at = 0
        for client, count in zip(gathered.clients, gathered.counts, strict=True):
            client.gathered = None
            client.last_entry = entry
            client.seen_at = seen_at
            if departure is None or client.out:
                client.out += answers[at : at + count]
                client.send()
            else:
                client.unsettled += 1
                data = answers[at] if count == 1 else b"".join(answers[at : at + count])
                departure.parcels.append((client, data, count))
            at += count

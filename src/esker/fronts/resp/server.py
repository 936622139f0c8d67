"""The listening side of the Redis front: accepts clients, knows them all, and keeps what they share.

    server = RespServer(broker, options)
    await server.start("127.0.0.1", 7711)      # port 0 picks a free one; `server.port` tells
    ...
    await server.close()

It must be made on the loop that runs it, and closed before the broker is.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Sequence

import structlog

from esker.fronts.access import KeyRing
from esker.fronts.resp import commands
from esker.fronts.resp.commands.table import Entry
from esker.fronts.resp.connection import Connection
from esker.fronts.resp.departures import Departure
from esker.fronts.resp.gathering import Gathering
from esker.fronts.resp.jobids import JobIds
from esker.fronts.resp.meters import LatencyMonitor, Rates, SlowLog
from esker.fronts.resp.options import SPELLINGS_MAX, RespOptions
from esker.fronts.resp.takers import Takers
from esker.fronts.resp.turns import Turns
from esker.node.interface import Broker

# How long a turn waits for clients that were answered together, and so are likely to ask together.
LINGER_TURNS = 8  # of the loop, each of which brings something
LINGER_S = 10e-6  # without anything new
LINGER_BYTES = 256 * 1024  # in all: large commands gain nothing by waiting

_CRON_S = 1.0  # how often idle clients are looked for and rates are taken
_CLOSE_S_MAX = 5.0  # how long a client that does not read may keep a closing server
_NEVER_NS = 1 << 62
_HTTP_TOLD_S = 60.0  # between two lines about HTTP requests: who sends them must not fill the diagnostics

_diagnostics = structlog.get_logger("esker.resp")


class RespServer:
    def __init__(self, broker: Broker, options: RespOptions | None = None, keys: KeyRing | None = None) -> None:
        self.broker: Broker = broker
        self.options: RespOptions = options or RespOptions()
        self.keys: KeyRing = keys or KeyRing()
        self.ids = JobIds(broker.node_id)
        self.loop = asyncio.get_running_loop()
        self.run_id = secrets.token_hex(20)
        self.started_at = time.time()
        self.leaving = False  # CLUSTER LEAVING: takes no new jobs, lets no consumer block

        self.entries = {name: Entry(command) for name, command in commands.COMMANDS.items()}
        self.lookup = dict(self.entries)  # by the exact bytes seen
        self.clients: dict[int, Connection] = {}
        self.takers = Takers()
        self.monitors: set[Connection] = set()
        self.gathering = Gathering(self)
        self.arrived: list[tuple[Connection, bytes]] = []  # and nobody has looked at it
        self.turns = Turns()
        self._turn_due = False
        self.answered_together = False  # several clients were, and nothing was executed since
        self._lingered = self._lingered_bytes = 0  # turns of the loop, and bytes that were in before the first of them
        self._took_at = 0.0
        self._departure: Departure | None = None  # the youngest
        self.slowlog = SlowLog(self.options.slowlog_entries_max)
        self.latency = LatencyMonitor()
        self.rates = Rates()
        self.write_failed = False  # replies had to be replaced because their events were not made durable
        self.bytes_in = self.bytes_out = 0
        self.connections_received = self.connections_rejected = self.slow_readers_cut = 0
        self.http_requests_cut = 0
        self._http_told_at = -_HTTP_TOLD_S

        self.paused_until = 0.0  # loop time; 0: not paused
        self._paused_writes_only = False
        self._postponed: set[Connection] = set()
        self._unpause: asyncio.TimerHandle | None = None
        self._next_id = 1
        self.host: str = ""
        self._listener: asyncio.Server | None = None
        self._cron: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None  # set while closing, when the last client has gone
        self.slow_ns = self.latency_ns = 0
        self.set_thresholds()

    # -- listening

    async def start(self, host: str, port: int) -> None:
        self.host = host
        self._listener = await self.loop.create_server(
            lambda: Connection(self), host, port, backlog=self.options.accept_backlog
        )
        self._cron = self.loop.call_later(_CRON_S, self._look_after_clients)

    @property
    def port(self) -> int:
        """The port it listens on; 0 when it does not."""
        if self._listener is None or not self._listener.sockets:
            return 0
        port = self._listener.sockets[0].getsockname()[1]
        assert isinstance(port, int)
        return port

    async def close(self) -> None:
        """Listens and executes no more, lets every reply that was promised leave, then ends every connection.

        The broker must still run: its gates decide when the last replies leave. Whoever waits for a job is let go.
        """
        if self._listener is not None:
            self._listener.close()
        for timer in (self._cron, self._unpause):
            if timer is not None:
                timer.cancel()
        self._emptied = asyncio.Event()
        for client in list(self.clients.values()):
            client.hang_up()
        if self.clients:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), _CLOSE_S_MAX)
        for client in list(self.clients.values()):
            client.kill()
        self._listener = None

    def admit(self, client: Connection) -> bool:
        """Registers a new client, unless there are too many."""
        self.connections_received += 1
        if len(self.clients) >= self.options.clients_max:
            self.connections_rejected += 1
            return False
        client.id = self._next_id
        client.taker = self.takers.enter()
        self._next_id += 1
        self.clients[client.id] = client
        return True

    def took_for_http(self, client: Connection) -> None:
        """A client sent an HTTP request. The operator is told, but not each time."""
        self.http_requests_cut += 1
        now = self.loop.time()
        if now - self._http_told_at >= _HTTP_TOLD_S:
            self._http_told_at = now
            _diagnostics.warning(
                "an HTTP request came to the Redis port, and its connection was cut",
                client=client.peer,
                why="a web page may have sent it, to have its body executed as commands",
                cut_since_start=self.http_requests_cut,
            )

    def forget(self, client: Connection) -> None:
        if self.clients.pop(client.id, None) is not None:
            self.takers.leave(client.taker)
        self._postponed.discard(client)
        if client in self.monitors:
            self.monitors.discard(client)
            self.refresh_care()
        if self._emptied is not None and not self.clients:
            self._emptied.set()

    def _look_after_clients(self) -> None:
        self._cron = self.loop.call_later(_CRON_S, self._look_after_clients)
        self.rates.look(self.commands_processed, self.bytes_in, self.bytes_out)
        if self.options.idle_timeout_s <= 0:
            return
        oldest = self.loop.time() - self.options.idle_timeout_s
        for client in list(self.clients.values()):
            if client.seen_at < oldest and not (client.held or client.monitoring):
                client.kill()

    # -- turns

    def run_turn(self) -> None:
        """Executes together what arrived in one turn of the loop, or in a few, as far as the turn's time allows.

        What many clients ask costs less in one go, and one sync does for all of them.
        """
        if self.answered_together and self._more_may_come():
            self.loop.call_soon(self.run_turn)
            return
        self.take_arrived()
        self._turn_due = self.answered_together = False
        served = self.turns.run()
        self.gathering.flush()
        for client in served:
            client.send()
        self._lingered, self._lingered_bytes = 0, self.bytes_in
        if self.turns:
            self.schedule_turn()
        if not self.turns.late:  # else others come first: the broker commits by itself, in a turn of the loop to come
            self.broker.commit()

    def _more_may_come(self) -> bool:
        now = time.perf_counter()
        if not self.arrived:
            return now - self._took_at < LINGER_S
        self.take_arrived()
        self._took_at = now
        self._lingered += 1
        return self._lingered < LINGER_TURNS and self.bytes_in - self._lingered_bytes < LINGER_BYTES

    def take_arrived(self) -> None:
        """Looks at what arrived: plain ADDJOBs are gathered, everything else waits for its turn."""
        if self.arrived:
            chunks = self.arrived[:]
            self.arrived.clear()  # it is one list for good: every client has it at hand
            self.gathering.take_all(chunks)

    def schedule_turn(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self.loop.call_soon(self.run_turn)

    def dispatch(self, client: Connection, replies: list[bytes]) -> None:
        """Writes replies, or keeps them until everything they tell of is durable."""
        departure = self.departure()
        if departure is None:
            client.write(b"".join(replies))
            return
        client.unsettled += 1
        departure.parcels.append((client, b"".join(replies), len(replies)))

    def departure(self) -> Departure | None:
        """What replies decided until now leave with; None: nothing, they may leave at once.

        Gates open in order, so when there is none, nothing that anybody waits for is left either.
        """
        gate = self.broker.gate
        if gate is None:
            return None
        departure = self._departure
        if departure is None or departure.gate is not gate:
            departure = self._departure = Departure(self, gate)
        return departure

    # -- finding commands

    def find(self, name: bytes) -> Entry | None:
        """The command of a name in any spelling, which is remembered so that the next lookup is direct."""
        entry = self.entries.get(name.upper()) if len(name) < 64 else None
        if entry is not None and len(self.lookup) < SPELLINGS_MAX:
            self.lookup[name] = entry
        return entry

    # -- measuring

    def set_thresholds(self) -> None:
        """Folds both thresholds into `slow_ns`, the one the hot path compares with."""
        slowlog_us, latency_ms = self.options.slowlog_slower_than_us, self.options.latency_threshold_ms
        self.latency_ns = latency_ms * 1_000_000
        self.slow_ns = min(
            slowlog_us * 1000 if slowlog_us >= 0 else _NEVER_NS,
            self.latency_ns if latency_ms > 0 else _NEVER_NS,
        )
        self.slowlog.resize(self.options.slowlog_entries_max)

    def took_long(self, client: Connection, arguments: Sequence[bytes], duration_ns: int) -> None:
        slowlog_us = self.options.slowlog_slower_than_us
        if 0 <= slowlog_us * 1000 <= duration_ns:
            self.slowlog.add(arguments, duration_ns // 1000, client.peer, client.name)
        if 0 < self.latency_ns <= duration_ns:
            self.latency.add("command", duration_ns // 1_000_000)

    @property
    def commands_processed(self) -> int:
        return sum(entry.calls for entry in self.entries.values())

    def reset_stats(self) -> None:
        for entry in self.entries.values():
            entry.calls = entry.failures = entry.ns = 0
        self.bytes_in = self.bytes_out = 0
        self.connections_received = self.connections_rejected = self.slow_readers_cut = 0

    # -- pausing clients

    def pause_clients(self, seconds: float, writes_only: bool) -> None:
        self.paused_until = max(self.paused_until, self.loop.time() + seconds)
        self._paused_writes_only = writes_only
        if self._unpause is not None:
            self._unpause.cancel()
        self._unpause = self.loop.call_at(self.paused_until, self.unpause_clients)
        self.refresh_care()

    def unpause_clients(self) -> None:
        self.paused_until = 0.0
        if self._unpause is not None:
            self._unpause.cancel()
            self._unpause = None
        self.refresh_care()
        waiting, self._postponed = self._postponed, set()
        for client in waiting:
            client.resume()

    def pauses(self, entry: Entry) -> bool:
        return self.paused_until > 0 and not entry.always and (entry.write or not self._paused_writes_only)

    def postpone(self, client: Connection) -> None:
        self._postponed.add(client)

    def refresh_care(self) -> None:
        for client in self.clients.values():
            client.refresh_care()

    # -- monitors

    def show_monitors(self, client: Connection, arguments: Sequence[bytes]) -> None:
        quoted = " ".join(map(_quoted, arguments))
        line = f"+{time.time():.6f} [0 {client.peer}] {quoted}\r\n".encode("latin-1")
        for monitor in list(self.monitors):
            if monitor.unread_bytes > self.options.monitor_bytes_max:
                self.slow_readers_cut += 1
                monitor.kill()
            else:
                monitor.write(line)


def _quoted(argument: bytes) -> str:
    text = argument.decode("latin-1").replace("\\", "\\\\").replace('"', '\\"')
    if not (text.isascii() and text.isprintable()):
        text = "".join(_ESCAPES.get(c) or (c if " " <= c <= "~" else f"\\x{ord(c):02x}") for c in text)
    return f'"{text}"'


_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\a": "\\a", "\b": "\\b"}

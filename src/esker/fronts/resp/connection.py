"""One client: bytes in, commands executed in order, replies out in order and not before they are durable.

The hot path: `data_received` parses, `take_turn` runs each command through the server's table, `send` hands the replies
to the server. Everything rare (passwords, monitors, muted or paused clients, bad arity) is behind the one flag
`careful` or an entry that was not found.

Order of effects:
* A chunk is parsed when it arrives and executed when all chunks of this turn of the loop have arrived, so that the
  commands of many clients share the engine's and the disk's work (`gathering`, `departures`).
* Replies wait in `out` during a turn, then with the server until their gate opens. Gates open in order, so the replies
  of one client leave in order. A PING of a client that is owed nothing does not wait, for it tells of nobody's work,
  nor does a lease of jobs that are on disk (`Broker.lasts`).
* A command that blocks *holds* the connection: later commands wait in `_backlog`, and beyond `HELD_BYTES_MAX` the
  socket is not read. `release` gives the reply and lets them run.
* A connection that ends (QUIT, protocol error, end of input) first gets every reply it was promised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol, cast

from esker.engine.replies import Leased
from esker.errors import EskerError
from esker.fronts.resp import encoding
from esker.fronts.resp.arguments import shown
from esker.fronts.resp.commands.table import Entry
from esker.fronts.resp.errors import failed
from esker.fronts.resp.options import HELD_BYTES_MAX
from esker.fronts.resp.parser import Arguments, Parser
from esker.fronts.resp.sockets import address, tune
from esker.fronts.resp.transactions import Transaction

if TYPE_CHECKING:
    from esker.fronts.resp.server import RespServer


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Connection(asyncio.Protocol):
    __slots__ = (
        "_arrived", "_backlog", "_backlog_bytes", "_encode", "_ended", "_reading", "_unheard", "_waiter", "_was_quiet",
        "authenticated", "broker", "careful", "closing", "congestion", "connected_at", "executing", "gathered", "held",
        "id", "ids", "last_entry", "lasting", "library", "local", "monitoring", "muted", "name", "null_array",
        "null_bulk", "out", "parser", "peer", "proto", "queued", "seen_at", "server", "skip_next", "taker",
        "transaction", "transport", "unsettled",
    )  # fmt: skip

    def __init__(self, server: RespServer) -> None:
        self.server = server
        self.broker = server.broker
        self.ids = server.ids
        self.id = 0
        self.name = b""
        self.taker = 0  # who takes the leases of this client (takers.py)
        self.library = {b"LIB-NAME": b"", b"LIB-VER": b""}
        self.proto = 2
        self.null_bulk = encoding.NULL_BULK
        self.null_array = encoding.NULL_ARRAY
        self.authenticated = not server.access.required
        self.muted = False  # CLIENT REPLY OFF
        self.skip_next = False  # CLIENT REPLY SKIP
        self.monitoring = False
        self.careful = False
        self.transaction: Transaction | None = None  # between MULTI and EXEC
        self.executing = False  # its EXEC: nothing may wait
        self.connected_at = self.seen_at = server.loop.time()
        self.last_entry: Entry | None = None
        self.transport: asyncio.Transport | None = None
        self.peer = self.local = "?:0"

        self._arrived = server.arrived
        self.parser = Parser(trusted=self.authenticated)
        self.out: list[bytes] = []  # replies of this turn
        self.lasting: bytes | None = None  # the one of them that tells of nothing which has yet to reach the disk
        self.gathered: bytes | None = None  # the queue for which the server's gathering holds commands of this client
        self.unsettled = 0  # turns whose replies wait for the disk
        self.queued = 0  # chunks of commands that wait for the turn to run
        self._backlog: list[Arguments] = []
        self._backlog_bytes = 0
        self._reading = True
        self.held = False
        self._waiter: Cancellable | None = None
        self._encode: Callable[[Leased], bytes] | None = None  # set while it waits for jobs
        self._unheard = False  # the reply of the held command is not wanted
        self._was_quiet = False  # it did not want some reply: any later one may be its sign that all before is done
        self._ended = False  # the client sends no more
        self.closing = False  # no more is executed
        self.congestion: asyncio.TimerHandle | None = None

    # -- transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's has its methods without being its subclass
        self.transport = transport
        self.peer = address(transport.get_extra_info("peername"))
        self.local = address(transport.get_extra_info("sockname"))
        if not self.server.admit(self):
            transport.write(b"-ERR max number of clients reached\r\n")
            self.closing = True
            transport.close()
            return
        options = self.server.options
        tune(transport.get_extra_info("socket"), options.tcp_keepalive_s)
        transport.set_write_buffer_limits(high=min(options.output_soft_bytes, options.output_bytes_max))
        self.refresh_care()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.take_arrived()
        self.closing = True
        self.transport = None
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = self._encode = None
        if self.congestion is not None:
            self.congestion.cancel()
        self._backlog.clear()
        self.server.forget(self)

    def eof_received(self) -> bool:
        """The client sends no more. What it sent is executed and answered; what it waits for is not."""
        self.server.take_arrived()
        self._ended = True
        if self._waiter is not None:
            self._waiter.cancel()
        if self.gathered is not None:
            self.server.gathering.flush()
        if self.queued:
            return True
        self.closing = True
        return bool(self.unsettled or self.out)

    def pause_writing(self) -> None:
        """The soft limit of unread replies is reached: from now on the time runs."""
        self.congestion = self.server.loop.call_later(self.server.options.output_soft_s, self._cut_slow_reader)

    def resume_writing(self) -> None:
        if self.congestion is not None:
            self.congestion.cancel()
            self.congestion = None

    def _cut_slow_reader(self) -> None:
        self.server.slow_readers_cut += 1
        if self.transport is not None:
            self.transport.abort()

    # -- executing

    def data_received(self, data: bytes) -> None:
        """It is looked at together with what the others sent."""
        arrived = self._arrived
        if not arrived:
            self.server.schedule_turn()
        arrived.append((self, data))

    def take(self, data: bytes) -> None:
        """A chunk that was not taken by its shape."""
        if self.closing:
            return
        server, parser = self.server, self.parser
        quick = not (self.careful or self.held or self.queued or parser.torn or parser.attention)
        self.seen_at = server.loop.time()
        commands = parser.feed(data)
        if quick and commands and not parser.attention and server.gathering.take(self, commands, data):
            return
        if self.held:
            self._hold_back(commands, len(data))
        elif commands or parser.attention:
            self.queued += 1
            if self.authenticated:
                server.turn.append((self, commands))
            else:  # how the rest of its bytes are to be read depends on what this does
                self.take_turn(commands)
                self.send()

    def take_turn(self, commands: list[Arguments]) -> None:
        """Executes a chunk of commands. The server calls it for every client that has sent something, then `send`."""
        self.queued -= 1
        if self.gathered is not None:
            self.server.gathering.flush()
        if self.closing:
            return
        if self.held:  # an earlier chunk of this turn blocks
            self._hold_back(commands, 0)
            return
        self._run(commands)
        if self.queued:
            return
        if self.parser.attention:
            self._read_on()
        if self._ended:
            self.closing = True

    def _run(self, commands: list[Arguments]) -> None:
        """Executes in order until one blocks; what is left waits in the backlog."""
        out = self.out
        server = self.server
        find = server.lookup.get
        slow_ns = server.slow_ns
        at, end = 0, len(commands)
        began = perf_counter_ns()
        while at < end:
            arguments = commands[at]
            at += 1
            entry = find(arguments[0]) or server.find(arguments[0])
            reply: bytes | None
            if entry is None or self.careful or not entry.least <= len(arguments) <= entry.most:
                reply = self._run_carefully(entry, arguments)
            else:
                try:
                    if entry.together is not None and at < end:
                        replies = entry.together(self, commands, at - 1)
                        if replies:
                            out += replies
                            at += len(replies) - 1
                            entry.calls += len(replies)
                            began = self._clocked(entry, arguments, began, slow_ns * len(replies))
                            continue
                    reply = entry.handler(self, arguments)
                except EskerError as error:
                    reply = failed(entry, error)
            if entry is not None:
                entry.calls += 1
                began = self._clocked(entry, arguments, began, slow_ns)
            if reply is None:
                self._hold_back(commands[at:], 0)
                break
            if reply:
                out.append(reply)
            if self.closing:
                break

    def _clocked(self, entry: Entry, arguments: Arguments, began: int, slow_ns: int) -> int:
        ended = perf_counter_ns()
        self.last_entry = entry
        entry.ns += ended - began
        if ended - began >= slow_ns:
            self.server.took_long(self, arguments, ended - began)
        return ended

    def _run_carefully(self, entry: Entry | None, arguments: Arguments) -> bytes | None:
        """Checks in Redis's order: known, arity, password, pause. Empty bytes: no reply is wanted."""
        reply = self._refusal(entry, arguments)
        skip = self.skip_next
        if self.transaction is not None and not (entry is not None and entry.at_once):
            self.skip_next = False
            if reply is None and entry is not None:
                reply = self.transaction.keep(entry, arguments)
            else:
                self.transaction.broken = True
        elif reply is None:
            assert entry is not None
            if self.server.pauses(entry):
                self._backlog.append(arguments)
                self.server.postpone(self)
                self.hold(None)
                return None
            if self.server.monitors and not entry.no_monitor:
                self.server.show_monitors(self, arguments)
            self.skip_next = False
            try:
                reply = entry.handler(self, arguments)
            except EskerError as error:
                reply = failed(entry, error)
        else:
            self.skip_next = False
        quiet = skip or self.muted
        self._was_quiet = self._was_quiet or quiet
        if reply is None:
            self._unheard = quiet
        self.refresh_care()
        return b"" if quiet and reply is not None else reply

    def _refusal(self, entry: Entry | None, arguments: Arguments) -> bytes | None:
        if entry is None:
            return encoding.error(f"ERR unknown command '{shown(arguments[0])}'")
        if not entry.least <= len(arguments) <= entry.most:
            name = entry.command.name.decode().lower()
            return encoding.error(f"ERR wrong number of arguments for '{name}' command")
        if not (self.authenticated or entry.no_auth):
            return b"-NOAUTH Authentication required.\r\n"
        return None

    def refresh_care(self) -> None:
        """`careful` is true when any rare thing applies to this client."""
        server = self.server
        self.careful = bool(
            not self.authenticated
            or self.muted
            or self.skip_next
            or self.transaction is not None
            or server.monitors
            or server.paused_until
        )
        self.parser.trusted = self.authenticated

    def _read_on(self) -> None:
        """Commands that were not parsed yet because of a password to come; then, perhaps, the end of the stream."""
        while self.parser.more and not (self.held or self.closing):
            self._run(self.parser.feed(b""))
        if self.parser.error is not None and not (self.held or self.closing):
            self.out.append(encoding.error(f"ERR {self.parser.error}"))
            self.closing = True

    def rename(self, name: bytes) -> None:
        """Connections of one name are one client; an empty one is none."""
        takers = self.server.takers
        takers.leave(self.taker)
        self.name = name
        self.taker = takers.enter(name)

    # -- holding

    @property
    def waits_for_jobs(self) -> bool:
        return self._encode is not None

    def hold(self, waiter: Cancellable | None) -> None:
        """The running command replies later, through `release`. `waiter` is cancelled if the client leaves."""
        self.held = True
        self._waiter = waiter

    def wait_for_jobs(self, topics: Sequence[bytes], timeout_ms: int, encode: Callable[[Leased], bytes]) -> None:
        self._encode = encode
        self.hold(self.broker.wait_for_jobs(topics, timeout_ms, self._delivered, taker=self.taker))

    def _delivered(self, leased: Leased | None) -> None:
        assert self._encode is not None
        self.release(self.null_array if leased is None else self._encode(leased))

    def unblock(self, reply: bytes) -> None:
        """Ends a wait for jobs early, with this reply."""
        if self._waiter is not None:
            self._waiter.cancel()
        self.release(reply)

    def release(self, reply: bytes) -> None:
        self._waiter = self._encode = None
        if not self._unheard:
            self.out.append(reply)
        self._unheard = False
        self.send()
        self.resume()

    def resume(self) -> None:
        """Goes on with what came while it was held; in a turn of its own, as `release` may run inside another's."""
        if self._backlog or self.parser.attention:
            self.server.loop.call_soon(self._run_backlog)
        else:
            self.held = False

    def _hold_back(self, commands: list[Arguments], size: int) -> None:
        self._backlog.extend(commands)
        self._backlog_bytes += size
        if self._backlog_bytes > HELD_BYTES_MAX and self._reading and self.transport is not None:
            self._reading = False
            self.transport.pause_reading()

    def _run_backlog(self) -> None:
        if self.closing:
            return
        self.held = False
        backlog, self._backlog, self._backlog_bytes = self._backlog, [], 0
        self._run(backlog)
        self._read_on()
        self.send()
        if not (self._reading or self.held) and self.transport is not None:
            self._reading = True
            self.transport.resume_reading()

    # -- replying

    def send(self) -> None:
        """Once per turn: the replies of the turn leave, now or when the broker's gate opens."""
        out = self.out
        if out:
            self.out = []
            entry = self.last_entry
            lasting = out[0] is self.lasting or (entry is not None and entry.blind)
            if lasting and len(out) == 1 and not (self.unsettled or self._was_quiet):
                self.write(out[0])
            else:
                self.server.dispatch(self, out)
        self.lasting = None
        if self.closing:
            self.close_when_flushed()

    def settle(self, data: bytes) -> None:
        """The replies of a turn, once they are durable."""
        self.unsettled -= 1
        self.write(data)
        if self.closing:
            self.close_when_flushed()

    def write(self, data: bytes) -> None:
        transport = self.transport
        if transport is None:
            return
        self.server.bytes_out += len(data)
        transport.write(data)
        if self.congestion is not None and transport.get_write_buffer_size() > self.server.options.output_bytes_max:
            self._cut_slow_reader()

    @property
    def descriptor(self) -> int:
        tcp = self.transport.get_extra_info("socket") if self.transport is not None else None
        return tcp.fileno() if tcp is not None else -1

    @property
    def unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    @property
    def unparsed_bytes(self) -> int:
        return self.parser.buffered + self._backlog_bytes

    def close_after_replies(self) -> None:
        """Executes no more; ends when every reply so far is written."""
        self.closing = True

    def hang_up(self) -> None:
        """Ends without executing more; what it was promised still goes out, what it waits for does not."""
        self.server.take_arrived()
        self.closing = True
        if self._waiter is not None:
            self._waiter.cancel()
        self.close_when_flushed()

    def kill(self) -> None:
        """Ends now. Replies that were not written are lost, as when the network breaks."""
        self.closing = True
        if self.transport is not None:
            self.transport.abort()

    def close_when_flushed(self) -> None:
        waiting = self.unsettled or self.out or self.queued or self.gathered is not None
        if not waiting and self.transport is not None:
            self.transport.close()

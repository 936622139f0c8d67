"""One client: bytes in, commands executed in order, replies out in order and not before they are durable.

The hot path is `data_received`: parse the chunk, run each command through the server's table, then look at the broker's
gate once. Everything rare (passwords, monitors, muted or paused clients, bad arity) is behind the one flag `careful` or
an entry that was not found.

Order of effects:
* Replies wait in `_out` during a turn, then in `_pending` until their gate opens; only the head of `_pending` is
  written.
* A command that blocks *holds* the connection: later commands wait in `_backlog`, and beyond `HELD_BYTES_MAX` the
  socket is not read. `release` gives the reply and lets them run.
* A connection that ends (QUIT, protocol error, end of input) first gets every reply it was promised.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol, cast

from esker.engine.replies import Leased
from esker.errors import EskerError
from esker.fronts.resp import encoding
from esker.fronts.resp.arguments import shown
from esker.fronts.resp.commands.table import Entry
from esker.fronts.resp.errors import CommandError, undurable
from esker.fronts.resp.options import HELD_BYTES_MAX
from esker.fronts.resp.parser import Arguments, Parser
from esker.fronts.resp.sockets import address, tune
from esker.node.interface import Gate

if TYPE_CHECKING:
    from esker.fronts.resp.server import RespServer


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class _Pending:
    """Replies that wait for one gate."""

    __slots__ = ("began_ns", "connection", "error", "gate", "replies", "settled")

    def __init__(self, connection: Connection, gate: Gate | None, replies: list[bytes], began_ns: int) -> None:
        self.connection = connection
        self.gate = gate
        self.replies = replies
        self.settled = gate is None
        self.error: BaseException | None = None
        self.began_ns = began_ns

    def settle(self, error: BaseException | None) -> None:
        self.settled = True
        self.error = error
        self.connection.flush(self)


class Connection(asyncio.Protocol):
    def __init__(self, server: RespServer) -> None:
        self.server = server
        self.broker = server.broker
        self.ids = server.ids
        self.id = 0
        self.name = b""
        self.library = {b"LIB-NAME": b"", b"LIB-VER": b""}
        self.proto = 2
        self.null_bulk = encoding.NULL_BULK
        self.null_array = encoding.NULL_ARRAY
        self.authenticated = not server.access.required
        self.muted = False  # CLIENT REPLY OFF
        self.skip_next = False  # CLIENT REPLY SKIP
        self.monitoring = False
        self.careful = False
        self.connected_at = self.seen_at = server.loop.time()
        self.last_entry: Entry | None = None
        self.transport: asyncio.Transport | None = None
        self.peer = self.local = "?:0"

        self._parser = Parser(trusted=self.authenticated)
        self._out: list[bytes] = []
        self._pending: deque[_Pending] = deque()
        self._backlog: list[Arguments] = []
        self._backlog_bytes = 0
        self._reading = True
        self._held = False
        self._waiter: Cancellable | None = None
        self._encode: Callable[[Leased], bytes] | None = None  # set while it waits for jobs
        self._unheard = False  # the reply of the held command is not wanted
        self._closing = False
        self._congestion: asyncio.TimerHandle | None = None

    # -- transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's has its methods without being its subclass
        self.transport = transport
        self.peer = address(transport.get_extra_info("peername"))
        self.local = address(transport.get_extra_info("sockname"))
        if not self.server.admit(self):
            transport.write(b"-ERR max number of clients reached\r\n")
            self._closing = True
            transport.close()
            return
        options = self.server.options
        tune(transport.get_extra_info("socket"), options.tcp_keepalive_s)
        transport.set_write_buffer_limits(high=min(options.output_soft_bytes, options.output_bytes_max))
        self.refresh_care()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self.transport = None
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = self._encode = None
        if self._congestion is not None:
            self._congestion.cancel()
        self._backlog.clear()
        self._pending.clear()
        self.server.forget(self)

    def eof_received(self) -> bool:
        """The client sends no more. What it was promised still goes out; what it waits for does not."""
        self._closing = True
        if self._waiter is not None:
            self._waiter.cancel()
        return bool(self._pending or self._out)

    def pause_writing(self) -> None:
        """The soft limit of unread replies is reached: from now on the time runs."""
        self._congestion = self.server.loop.call_later(self.server.options.output_soft_s, self._cut_slow_reader)

    def resume_writing(self) -> None:
        if self._congestion is not None:
            self._congestion.cancel()
            self._congestion = None

    def _cut_slow_reader(self) -> None:
        self.server.slow_readers_cut += 1
        if self.transport is not None:
            self.transport.abort()

    # -- executing

    def data_received(self, data: bytes) -> None:
        server = self.server
        server.bytes_in += len(data)
        self.seen_at = server.loop.time()
        if self._closing:
            return
        commands = self._parser.feed(data)
        if self._held:
            self._hold_back(commands, len(data))
            return
        if commands:
            self._run(commands)
        if self._parser.attention:
            self._read_on()
        self._send()

    def _run(self, commands: list[Arguments]) -> None:
        """Executes in order until one blocks; what is left waits in the backlog."""
        out = self._out
        server = self.server
        find = server.lookup.get
        slow_ns = server.slow_ns
        at, end = 0, len(commands)
        alone = False
        began = perf_counter_ns()
        while at < end:
            arguments = commands[at]
            entry = find(arguments[0]) or server.find(arguments[0])
            reply: bytes | None
            if entry is None or self.careful or not entry.least <= len(arguments) <= entry.most:
                reply = self._run_carefully(entry, arguments)
            else:
                try:
                    if entry.together is not None and end - at > 1 and not alone:
                        replies = entry.together(self, commands, at)
                        if replies:
                            out += replies
                            at += len(replies)
                            entry.calls += len(replies)
                            began = self._clocked(entry, arguments, began, slow_ns * len(replies))
                            continue
                    reply = entry.handler(self, arguments)
                except EskerError as error:
                    alone = True  # what failed together is not tried together again and again
                    reply = _failed(entry, error)
            at += 1
            if entry is not None:
                entry.calls += 1
                began = self._clocked(entry, arguments, began, slow_ns)
            if reply is None:
                self._hold_back(commands[at:], 0)
                break
            if reply:
                out.append(reply)
            if self._closing:
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
        if reply is None:
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
                reply = _failed(entry, error)
        else:
            self.skip_next = False
        quiet = skip or self.muted
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
            not self.authenticated or self.muted or self.skip_next or server.monitors or server.paused_until
        )
        self._parser.trusted = self.authenticated

    def _read_on(self) -> None:
        """Commands that were not parsed yet because of a password to come; then, perhaps, the end of the stream."""
        while self._parser.more and not (self._held or self._closing):
            self._run(self._parser.feed(b""))
        if self._parser.error is not None and not (self._held or self._closing):
            self._out.append(encoding.error(f"ERR {self._parser.error}"))
            self._closing = True

    # -- holding

    @property
    def held(self) -> bool:
        return self._held

    @property
    def waits_for_jobs(self) -> bool:
        return self._encode is not None

    def hold(self, waiter: Cancellable | None) -> None:
        """The running command replies later, through `release`. `waiter` is cancelled if the client leaves."""
        self._held = True
        self._waiter = waiter

    def wait_for_jobs(self, topics: Sequence[bytes], timeout_ms: int, encode: Callable[[Leased], bytes]) -> None:
        self._encode = encode
        self.hold(self.broker.wait_for_jobs(topics, timeout_ms, self._delivered))

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
            self._out.append(reply)
        self._unheard = False
        self._send()
        self.resume()

    def resume(self) -> None:
        """Goes on with what came while it was held; in a turn of its own, as `release` may run inside another's."""
        if self._backlog or self._parser.attention:
            self.server.loop.call_soon(self._run_backlog)
        else:
            self._held = False

    def _hold_back(self, commands: list[Arguments], size: int) -> None:
        self._backlog.extend(commands)
        self._backlog_bytes += size
        if self._backlog_bytes > HELD_BYTES_MAX and self._reading and self.transport is not None:
            self._reading = False
            self.transport.pause_reading()

    def _run_backlog(self) -> None:
        if self._closing:
            return
        self._held = False
        backlog, self._backlog, self._backlog_bytes = self._backlog, [], 0
        self._run(backlog)
        self._read_on()
        self._send()
        if not (self._reading or self._held) and self.transport is not None:
            self._reading = True
            self.transport.resume_reading()

    # -- replying

    def _send(self) -> None:
        """Once per turn: writes the replies of the turn, or queues them behind the gate."""
        out = self._out
        if not out:
            if self._closing:
                self._close_when_flushed()
            return
        self._out = []
        gate = self.broker.gate
        pending = self._pending
        if gate is None and not pending:
            self.write(b"".join(out))
            if self._closing:
                self._close_when_flushed()
            return
        last = pending[-1] if pending else None
        if last is not None and last.gate is gate and (gate is None or not last.settled):
            last.replies += out
            return
        began_ns = perf_counter_ns() if self.server.latency_ns else 0
        waiting = _Pending(self, gate, out, began_ns)
        pending.append(waiting)
        if gate is not None:
            gate.subscribe(waiting.settle)

    def flush(self, settled: _Pending) -> None:
        """A gate has opened (or failed): writes what now may leave, in order."""
        if settled.began_ns and perf_counter_ns() - settled.began_ns >= self.server.latency_ns > 0:
            self.server.latency.add("durability", (perf_counter_ns() - settled.began_ns) // 1_000_000)
        pending = self._pending
        leaving: list[bytes] = []
        while pending and pending[0].settled:
            head = pending.popleft()
            if head.error is None:
                leaving += head.replies
            else:
                self.server.write_failed = True
                leaving += [undurable(head.error)] * len(head.replies)
        if leaving:
            self.write(b"".join(leaving))
        if self._closing:
            self._close_when_flushed()

    def write(self, data: bytes) -> None:
        transport = self.transport
        if transport is None:
            return
        self.server.bytes_out += len(data)
        transport.write(data)
        if self._congestion is not None and transport.get_write_buffer_size() > self.server.options.output_bytes_max:
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
        return self._parser.buffered + self._backlog_bytes

    def close_after_replies(self) -> None:
        """Executes no more; ends when every reply so far is written."""
        self._closing = True

    def hang_up(self) -> None:
        """Ends without executing more; what it was promised still goes out, what it waits for does not."""
        self._closing = True
        if self._waiter is not None:
            self._waiter.cancel()
        self._close_when_flushed()

    def kill(self) -> None:
        """Ends now. Replies that were not written are lost, as when the network breaks."""
        self._closing = True
        if self.transport is not None:
            self.transport.abort()

    def _close_when_flushed(self) -> None:
        if not self._pending and not self._out and self.transport is not None:
            self.transport.close()


def _failed(entry: Entry, error: EskerError) -> bytes:
    """The reply of a command that raised. Anything but our own errors is a bug, and ends the connection loudly."""
    entry.failures += 1
    if isinstance(error, CommandError):
        return error.reply
    return encoding.error(f"MISCONF {error}")  # the shard serves no more

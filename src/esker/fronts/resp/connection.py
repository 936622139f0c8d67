"""One client: bytes in, commands executed in order, replies out in order and not before they are durable.

The hot path: `take` parses, `take_turn` runs each command through the server's table, `send` hands the replies to the
server. Everything rare (passwords, monitors, muted or paused clients, bad arity) is behind the one flag `careful` or an
entry that was not found.

Order of effects:
* A chunk is executed when all chunks of this turn of the loop have arrived, so that the commands of many clients share
  the engine's and the disk's work (`gathering`, `departures`).
* A turn gives each client a share of its time (`turns`). What is left of a client's commands waits in `_commands`, what
  it sends meanwhile waits unparsed in `_chunks`, and beyond `WAITING_BYTES_MAX` its socket is not read. So commands of
  one client run in order, whatever it sends, and nothing that others do depends on how much it is.
* Replies wait in `out` during a turn, then with the server until their gate opens. Gates open in order, so the replies
  of one client leave in order. A PING of a client that is owed nothing does not wait, for it tells of nobody's work,
  nor does a lease of jobs that are on disk (`Broker.lasts`).
* A command that blocks *holds* the connection: later commands wait in the same way. `release` gives the reply and lets
  them run.
* A connection that ends (QUIT, protocol error, end of input) first gets every reply it was promised.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, Protocol, cast

from esker.engine.replies import Leased
from esker.errors import EskerError
from esker.fronts.access import ANYONE, Key
from esker.fronts.guesses import address_of
from esker.fronts.resp import encoding
from esker.fronts.resp.arguments import shown
from esker.fronts.resp.commands.table import Entry
from esker.fronts.resp.errors import CommandError, failed
from esker.fronts.resp.parser import Arguments, Parser
from esker.fronts.resp.permissions import no_access, permit
from esker.fronts.resp.sockets import address, tune
from esker.fronts.resp.transactions import Transaction
from esker.fronts.resp.turns import PARSED_LATER_BYTES, WAITING_BYTES_MAX

if TYPE_CHECKING:
    from esker.fronts.resp.server import RespServer


_HTTP_WORDS: Final = frozenset({b"POST", b"HOST:"})  # as in Redis


def _is_http(arguments: Arguments) -> bool:
    """What a browser sends first, taken for a command. No client of ours does, but a page may make one do so."""
    return arguments[0].upper() in _HTTP_WORDS or arguments[-1].startswith(b"HTTP/1.")


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Connection(asyncio.Protocol):
    __slots__ = (
        "_arrived", "_at", "_chunks", "_commands", "_encode", "_ended", "_reading", "_unheard", "_waiter",
        "_waiting_bytes", "_was_quiet", "address", "authenticated", "broker", "careful", "closing", "congestion",
        "connected_at", "executing", "failed_logins", "gathered", "held", "id", "ids", "key", "last_entry", "lasting",
        "library", "local", "monitoring", "muted", "name", "null_array", "null_bulk", "out", "parser", "peer",
        "postponed", "proto", "queued", "seen_at", "server", "skip_next", "taker", "transaction", "transport",
        "unsettled",
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
        self.authenticated = not server.keys.required
        self.key: Key = ANYONE  # who it is, once it is authenticated
        self.failed_logins = 0
        self.address = "?"  # as far as guesses are counted
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
        self.parser = Parser(self.authenticated, server.options.bulk_bytes_max)
        self.out: list[bytes] = []  # replies of this turn
        self.lasting: bytes | None = None  # the one of them that tells of nothing which has yet to reach the disk
        self.gathered: bytes | None = None  # the queue for which the server's gathering holds commands of this client
        self.unsettled = 0  # turns whose replies wait for the disk
        self.queued = False  # the server will give it a turn
        self._commands: list[Arguments] = []  # parsed; those before `_at` were executed
        self._at = 0
        self._chunks: deque[bytes] = deque()  # what it sent behind them
        self._waiting_bytes = 0  # of `_chunks`
        self._reading = True
        self.held = False
        self.postponed = False  # it is held because clients are paused, and its command has yet to run
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
        self.address = address_of(transport.get_extra_info("peername"))
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
        self._end_wait()
        if self.congestion is not None:
            self.congestion.cancel()
        self._drop_input()
        self.server.forget(self)

    def eof_received(self) -> bool:
        """The client sends no more. What it sent is executed and answered; what it waits for is not."""
        self.server.take_arrived()
        self._ended = True
        if self.gathered is not None:
            self.server.gathering.flush()
        if not self.queued:
            self._finish()
        return bool(self.unsettled or self.out or not self.closing)

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
        if len(data) > PARSED_LATER_BYTES:
            self._stop_reading()  # libuv would read 32 such chunks before anybody else has a turn

    def take(self, data: bytes) -> None:
        """A chunk that was not taken by its shape."""
        if self.closing:
            return
        server, parser = self.server, self.parser
        self.seen_at = server.loop.time()
        if self.held or self.queued or len(data) > PARSED_LATER_BYTES:
            self._chunks.append(data)
            self._waiting_bytes += len(data)
            if self._waiting_bytes > WAITING_BYTES_MAX:
                self._stop_reading()
            elif self.held:
                self._read_on()  # it may wait for long, and who is not read is not seen to leave
            if not self.held:
                self._wait_for_turn()
            return
        quick = not (self.careful or parser.torn or parser.attention)
        commands = parser.feed(data)
        if quick and commands and not parser.attention and server.gathering.take(self, commands, data):
            return
        if commands or parser.attention:
            self._commands, self._at = commands, 0
            self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        if not self.queued:
            self.queued = True
            self.server.turns.join(self)
            self.server.schedule_turn()

    def take_turn(self, until_ns: int) -> bool:
        """Executes what waits until that time, but one step at least. True: there is more for another turn."""
        if self.gathered is not None:
            self.server.gathering.flush()
        while self._may_run():
            if self._at == len(self._commands) and not self._parse_next():
                break
            if self._run(until_ns) >= until_ns and self._has_input() and self._may_run():
                return True
        if self._ended:
            self._finish()
        return False

    def _finish(self) -> None:
        """Its input has ended and this is as far as it can be executed. A login that is under way is still told."""
        if self.waits_for_jobs or not self.held:
            self._end_wait()
            self.closing = True

    def _may_run(self) -> bool:
        return not (self.held or self.closing)

    def _parse_next(self) -> bool:
        """Makes the next commands of what was sent. False: there are none."""
        parser = self.parser
        commands: list[Arguments] = []
        while not commands:
            if parser.more:  # was not parsed because of a password to come
                commands = parser.feed(b"")
            elif parser.error is not None:
                self.out.append(encoding.error(f"ERR {parser.error}"))
                self.closing = True
                break
            elif self._chunks:
                data = self._chunks.popleft()
                self._waiting_bytes -= len(data)
                commands = parser.feed(data)
                if self._waiting_bytes <= WAITING_BYTES_MAX:
                    self._read_on()
            else:
                break
        self._commands, self._at = commands, 0
        return len(commands) > 0

    def _has_input(self) -> bool:
        """Whether it sent anything that was not executed."""
        return self._at < len(self._commands) or len(self._chunks) > 0 or self.parser.attention

    def _drop_input(self) -> None:
        self._commands, self._at = [], 0
        self._chunks.clear()
        self._waiting_bytes = 0

    def _stop_reading(self) -> None:
        if self._reading and self.transport is not None and not self.transport.is_closing():
            self._reading = False
            self.transport.pause_reading()

    def _read_on(self) -> None:
        if not self._reading and self.transport is not None and not self.transport.is_closing():
            self._reading = True
            self.transport.resume_reading()

    def _run(self, until_ns: int) -> int:
        """Executes in order until one blocks, the client is to end, or the time has come. Returns what time it is."""
        out = self.out
        server = self.server
        find = server.lookup.get
        slow_ns = server.slow_ns
        commands = self._commands
        at, end = self._at, len(commands)
        began = perf_counter_ns()
        while at < end:
            arguments = commands[at]
            at += 1
            entry = find(arguments[0]) or server.find(arguments[0])
            reply: bytes | None
            if entry is None or self.careful or not entry.least <= len(arguments) <= entry.most:
                reply = self._run_carefully(entry, arguments)
                if reply is None and self.postponed:
                    at -= 1
                    break
            else:
                try:
                    if entry.together is not None and at < end:
                        replies = entry.together(self, commands, at - 1)
                        if replies:
                            out += replies
                            at += len(replies) - 1
                            entry.calls += len(replies)
                            began = self._clocked(entry, arguments, began, slow_ns * len(replies))
                            if began >= until_ns:
                                break
                            continue
                    reply = entry.handler(self, arguments)
                except EskerError as error:
                    reply = failed(entry, error)
            if entry is not None:
                entry.calls += 1
                began = self._clocked(entry, arguments, began, slow_ns)
            if reply is None:
                break
            if reply:
                out.append(reply)
            if began >= until_ns or self.closing:
                break
        if at == end:
            self._commands, at = [], 0
        self._at = at
        return began

    def _clocked(self, entry: Entry, arguments: Arguments, began: int, slow_ns: int) -> int:
        ended = perf_counter_ns()
        self.last_entry = entry
        entry.ns += ended - began
        if ended - began >= slow_ns and not entry.no_auth:  # whose arguments are secrets
            self.server.took_long(self, arguments, ended - began)
        return ended

    def _run_carefully(self, entry: Entry | None, arguments: Arguments) -> bytes | None:
        """Checks in Redis's order: known, arity, password, permission, pause. Empty bytes: no reply is wanted."""
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
                self.postponed = True
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
            if _is_http(arguments):
                self.server.took_for_http(self)
                self.close_after_replies()
                return b""
            return encoding.error(f"ERR unknown command '{shown(arguments[0])}'")
        if not entry.least <= len(arguments) <= entry.most:
            name = entry.command.name.decode().lower()
            return encoding.error(f"ERR wrong number of arguments for '{name}' command")
        if not (self.authenticated or entry.no_auth):
            return b"-NOAUTH Authentication required.\r\n"
        if not self.key.unlimited:
            try:
                permit(self, entry.command, arguments)
            except CommandError as error:
                entry.failures += 1
                return error.reply
        return None

    def log_in(self, key: Key) -> None:
        """From here on its commands are those of `key`."""
        self.key = key
        self.authenticated = True
        self.failed_logins = 0
        self.refresh_care()

    def reach(self, name: bytes) -> None:
        """Refuses a topic that was not named where the table of commands says, and is not this key's."""
        if not self.key.reaches(name):
            raise no_access()

    def refresh_care(self) -> None:
        """`careful` is true when any rare thing applies to this client."""
        server = self.server
        self.careful = bool(
            not self.authenticated
            or not self.key.unlimited
            or self.muted
            or self.skip_next
            or self.transaction is not None
            or server.monitors
            or server.paused_until
        )
        self.parser.trusted = self.authenticated

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

    def _end_wait(self) -> None:
        """The client has left, or is to: what it waits for does not come any more."""
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = self._encode = None

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
        self.held = self.postponed = False
        if self._has_input() or self._ended:
            self._wait_for_turn()

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
        return self.parser.buffered + self._waiting_bytes

    def close_after_replies(self) -> None:
        """Executes no more; ends when every reply so far is written."""
        self.closing = True

    def hang_up(self) -> None:
        """Ends without executing more; what it was promised still goes out, what it waits for does not."""
        self.server.take_arrived()
        self.closing = True
        self._end_wait()
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

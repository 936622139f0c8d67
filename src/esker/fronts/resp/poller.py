"""The sockets of the Redis front, polled by the front itself: what all clients have sent is read in one go.

    loop ─► our epoll has something ─► Poller.look ─► read each ─► arrived ─► the server's turn

uvloop keeps a handle for each socket, and for each that is readable it makes a callback of its own; for commands of a
few hundred bytes that costs as much as executing them. Here the loop watches one descriptor, that of an epoll with all
sockets in it, and a turn of many clients is a loop of `read`, then one of `write` (decision 0012).

A socket is an `asyncio.Transport` to its protocol, with these rules:
* `write` sends at once. What the kernel does not take is kept, and sent when there is room, before anything later.
* The protocol hears `pause_writing` when more than `high` is kept, `resume_writing` when half of that is left.
* `close` sends what is kept first, `abort` throws it away; both are heard as `connection_lost` in a later turn.
* A client that ends its half is heard as `eof_received`; one that is gone for good ends at once, whatever is kept.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable
from itertools import islice
from os import read, write, writev
from select import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, epoll
from typing import Final, Generic, TypeVar

import structlog

READ_BYTES: Final = 16 * 1024  # of a client in a turn, unless it has sent more
READ_BYTES_MAX: Final = 1024 * 1024  # then up to so many; the rest waits for the next turn, so that all get theirs
_EVENTS_MAX: Final = 1024  # sockets in a turn; those left over come first in the next
_ACCEPTS_MAX: Final = 256  # in a turn
_PIECES_MAX: Final = 512  # of what is kept, in one call; the kernel takes at most 1024
_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_FILES_S: Final = 1.0  # until it is tried again to accept somebody
_diagnostics = structlog.get_logger("esker.resp")

P = TypeVar("P", bound=asyncio.Protocol)


class Socket(asyncio.Transport, Generic[P]):
    __slots__ = (
        "_closing",
        "_high",
        "_kept",
        "_kept_bytes",
        "_mask",
        "_paused",
        "_poller",
        "_socket",
        "fd",
        "protocol",
    )

    def __init__(self, poller: Poller[P], accepted: socket.socket, protocol: P) -> None:
        super().__init__(
            {"socket": accepted, "peername": _name(accepted.getpeername), "sockname": accepted.getsockname()}
        )
        self._poller = poller
        self._socket = accepted
        self.fd = accepted.fileno()
        self.protocol = protocol
        self._mask = EPOLLIN  # what is waited for
        self._kept: deque[bytes | memoryview] = deque()
        self._kept_bytes = 0
        self._high = 64 * 1024
        self._paused = False  # the protocol was told to write no more
        self._closing = False

    # -- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._kept or self._closing:
            self._keep(bytes(data))
            return
        try:
            sent = write(self.fd, data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._end(error)
            return
        if sent < len(data):
            self._keep(bytes(data[sent:]))

    def _keep(self, data: bytes) -> None:
        if self._closing:
            return
        self._kept.append(data)
        self._kept_bytes += len(data)
        self._watch(self._mask | EPOLLOUT)
        if self._kept_bytes > self._high and not self._paused:
            self._paused = True
            self.protocol.pause_writing()

    def _send_kept(self) -> None:
        try:
            sent = writev(self.fd, list(islice(self._kept, _PIECES_MAX)))
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error)
            return
        self._kept_bytes -= sent
        while sent and sent >= len(self._kept[0]):
            sent -= len(self._kept.popleft())
        if sent:
            self._kept[0] = memoryview(self._kept[0])[sent:]
        if not self._kept:
            if self._closing:
                self._end(None)
                return
            self._watch(self._mask & ~EPOLLOUT)
        if self._paused and self._kept_bytes * 2 <= self._high:
            self._paused = False
            self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self._kept_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """`low` is always half of `high`."""
        if high is not None:
            self._high = high

    # -- reading

    def pause_reading(self) -> None:
        self._watch(self._mask & ~EPOLLIN)

    def resume_reading(self) -> None:
        if not self._closing:
            self._watch(self._mask | EPOLLIN)

    def attend(self, event: int) -> bytes:
        """Anything but the plain arrival of data. Returns what has come, if any."""
        if event & EPOLLOUT and self._kept:
            self._send_kept()
        if event & self._mask & EPOLLIN:
            return self.read()
        if event & (EPOLLHUP | EPOLLERR):
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._end(OSError(code, errno.errorcode.get(code, "unknown")) if code else None)
        return b""

    def read(self) -> bytes:
        """What has come, up to a bound; nothing: it has ended, or there was nothing after all."""
        try:
            data = read(self.fd, READ_BYTES)
            if len(data) == READ_BYTES:
                return self._read_on(data)
        except BlockingIOError:
            return b""
        except OSError as error:
            self._end(error)
            return b""
        if not data:
            self._hear_end()
        return data

    def _read_on(self, data: bytes) -> bytes:
        """A client that sends much: it costs less in large pieces."""
        parts, size = [data], len(data)
        while size < READ_BYTES_MAX:
            try:
                more = read(self.fd, READ_BYTES_MAX - size)
            except BlockingIOError:
                break
            if not more:
                break  # that is heard when it is read the next time
            parts.append(more)
            size += len(more)
        return b"".join(parts)

    def _hear_end(self) -> None:
        self._watch(self._mask & ~EPOLLIN)
        if not self.protocol.eof_received():
            self.close()

    # -- ending

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        if self._kept:
            self._closing = True
            self._watch(self._mask & ~EPOLLIN)
        else:
            self._end(None)

    def abort(self) -> None:
        self._end(None)

    def _end(self, error: OSError | None) -> None:
        """Nothing more is sent or read."""
        self._closing = True
        self._kept.clear()
        self._kept_bytes = 0
        self._poller.forget(self, error)

    def lost(self, error: OSError | None) -> None:
        self.protocol.connection_lost(error)
        self._socket.close()

    def _watch(self, mask: int) -> None:
        if mask != self._mask:
            self._mask = mask
            self._poller.watch(self, mask)


class Poller(Generic[P]):
    """`make` gives each new client its protocol; `arrived` gets what they send, and then `turn` is called."""

    def __init__(self, make: Callable[[], P], arrived: list[tuple[P, bytes]], turn: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._make = make
        self._arrived = arrived
        self._turn = turn
        self._epoll = epoll()
        self._sockets: dict[int, Socket[P]] = {}
        self._listening: list[socket.socket] = []
        self._loop.add_reader(self._epoll.fileno(), self._look)

    # -- clients

    def _look(self) -> None:
        self.read()
        self._turn()

    def read(self) -> None:
        """Reads what has come, from everybody."""
        sockets, arrived = self._sockets, self._arrived
        for fd, event in self._epoll.poll(0, _EVENTS_MAX):
            client = sockets.get(fd)
            if client is None:
                continue  # it has ended since
            data = client.read() if event == EPOLLIN else client.attend(event)
            if data:
                arrived.append((client.protocol, data))

    def watch(self, client: Socket[P], mask: int) -> None:
        if self._sockets.get(client.fd) is client:
            self._epoll.modify(client.fd, mask)

    def forget(self, client: Socket[P], error: OSError | None) -> None:
        if self._sockets.get(client.fd) is client:
            del self._sockets[client.fd]
            self._epoll.unregister(client.fd)
            self._loop.call_soon(client.lost, error)

    # -- newcomers

    def listen(self, listening: socket.socket) -> None:
        """Takes over a socket that is bound, listens and does not block."""
        self._listening.append(listening)
        self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_MAX):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_FILES:
                    raise
                _diagnostics.warning("cannot accept a client", why=error.strerror, trying_again_in_s=_NO_FILES_S)
                self._loop.remove_reader(listening)
                self._loop.call_later(_NO_FILES_S, self._accept_again, listening)
                return
            self._welcome(accepted)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self._loop.add_reader(listening, self._accept, listening)

    def _welcome(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        client = Socket(self, accepted, self._make())
        self._sockets[client.fd] = client
        self._epoll.register(client.fd, EPOLLIN)
        client.protocol.connection_made(client)

    @property
    def port(self) -> int:
        """The port it listens on; 0 when it does not."""
        port = self._listening[0].getsockname()[1] if self._listening else 0
        assert isinstance(port, int)
        return port

    def stop_listening(self) -> None:
        for listening in self._listening:
            self._loop.remove_reader(listening)
            listening.close()
        self._listening.clear()

    def close(self) -> None:
        """Whoever is still here is cut."""
        self.stop_listening()
        for client in tuple(self._sockets.values()):
            client.abort()
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()


def _name(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except OSError:  # it has gone already
        return None

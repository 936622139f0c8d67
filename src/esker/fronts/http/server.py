"""The listening side of the HTTP front: HTTP/1.1, cleartext HTTP/2 and WebSocket on one port, in the node's own loop.

    server = HttpServer(broker, options, keys)
    await server.start("127.0.0.1", 4000)      # port 0 picks a free one; `server.port` tells
    ...
    await server.close()

It must be made on the loop that runs it, and closed before the broker is: its gates decide when replies leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
from itertools import islice
from pathlib import Path
from typing import Final

import structlog

from esker.errors import SettingsError
from esker.fronts.access import KeyRing
from esker.fronts.http.front import Front
from esker.fronts.http.options import HttpOptions
from esker.fronts.http.table import ROUTES
from esker.fronts.http.wire.carried import CarrierLimits
from esker.fronts.http.wire.connection import Connection, too_many
from esker.fronts.http.wire.exchange import refusal
from esker.fronts.http.wire.heads import Heads
from esker.fronts.http.wire.others import Others
from esker.fronts.http.wire.tunnel import DESCRIPTORS
from esker.fronts.listening import listen
from esker.node.interface import Broker

_diagnostics = structlog.get_logger("esker.http")

LINGER_S: Final = 1.0  # how long clients have at the end to take what they were answered; then connections are cut
_LOOK_S: Final = 1.0  # how often each connection is looked at, whether it gets on
_LOOKS: Final = 16  # parts of that, in each of which some are looked at
_KEEPALIVE_S: Final = 300  # a peer that vanished is noticed in the end
_ACCEPTS_A_TURN: Final = 32
_ACCEPT_AGAIN_S: Final = 0.1  # after the system had no descriptor for another
_EVICT_LOOKS: Final = 32  # connections, for one that might be closed
_QUIET_S: Final = 1.0  # whoever said something within this time is not closed for a newcomer


class HttpServer:
    others: Others  # who speaks what is not HTTP/1.1

    def __init__(self, broker: Broker, options: HttpOptions | None = None, keys: KeyRing | None = None) -> None:
        self.options = options or HttpOptions()
        self.front = Front(broker, self.options, keys or KeyRing(), ROUTES)
        self.port = 0  # that it listens on; 0 when it does not
        self.loop = asyncio.get_running_loop()
        self.connections: dict[Connection, None] = {}  # in HTTP/1.1; those at the front are the first to be closed
        self.heads = Heads()
        self.unsent, self.arrivals = self.front.unsent, self.front.arrivals
        self.head_s = self.options.header_read_timeout_ms / 1000
        self.body_s = self.options.body_read_timeout_ms / 1000
        self.body_bytes_min = self.options.body_bytes_min
        self.idle_s = self.options.keep_alive_s or math.inf
        self.stall_s = self.options.stall_ms / 1000
        self._unseen: list[Connection] = []  # that are to be looked at next
        self._slice = 1  # … how many at a time
        self._listening: list[socket.socket] = []
        self._tls: ssl.SSLContext | None = None
        self._joining: set[asyncio.Task[None]] = set()  # clients that were accepted, before their TLS is agreed on
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()  # there was a moment without any connection

    async def start(self, host: str, port: int) -> None:
        """Raises OSError when it cannot listen there, SettingsError when its certificate cannot be used."""
        self._tls = _tls(self.options)
        listening = await listen(host, port, self.options.accept_backlog)
        self.others = Others(
            self.front,
            CarrierLimits(
                backlog=self.options.accept_backlog,
                head_s=self.head_s,
                body_s=self.body_s,
                body_bytes_min=self.body_bytes_min,
                body_bytes_max=self.options.max_body_bytes,
                stall_s=self.stall_s,
                unsent=self.unsent,
                arrivals=self.arrivals,
            ),
        )
        await self.others.started()
        self.port = listening[0].getsockname()[1]
        self.front.doors.listens(host, [each.getsockname()[0] for each in listening])
        for each in listening:
            # Accepted sockets inherit these.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
            self._listening.append(each)
            self.loop.add_reader(each, self._accept, each)
        self._look()

    def ended(self, connection: Connection) -> None:
        """It is no longer ours: it was lost, or handed on."""
        self.connections.pop(connection, None)
        if not self.connections:
            self._empty.set()

    def _accept(self, listening: socket.socket) -> None:
        """Some clients of those that wait: thousands may come at once, and others must be served meanwhile."""
        for _ in range(_ACCEPTS_A_TURN):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors, or no memory: it would be reported again at once
                self.front.accept_failures += 1
                _diagnostics.warning("no more connections for a moment", why=str(error))
                self.loop.remove_reader(listening)
                self.loop.call_later(_ACCEPT_AGAIN_S, self._accept_again, listening)
                return
            accepted.setblocking(False)
            if self._make_room(1):
                task = self.loop.create_task(self._join(accepted))
                self._joining.add(task)
                task.add_done_callback(self._joining.discard)
            else:
                self._refuse(accepted)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._listening and not self.front.stopping.is_set():
            self.loop.add_reader(listening, self._accept, listening)

    async def _join(self, accepted: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(
                lambda: Connection(self),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self.head_s if self._tls is not None else None,
            )
        except OSError:  # it has left, or speaks no TLS
            accepted.close()

    def _refuse(self, accepted: socket.socket) -> None:
        """There are too many. Over TLS nothing can be said yet."""
        self.front.connections_refused += 1
        with contextlib.suppress(OSError):  # it has left already
            if self._tls is None:
                accepted.send(refusal(too_many()))
        accepted.close()

    def admits_tunnel(self) -> bool:
        """Whether one more client may go on in another protocol, which takes more descriptors."""
        if self._make_room(DESCRIPTORS):
            return True
        self.front.connections_refused += 1
        return False

    def _make_room(self, more: int) -> bool:
        """For so many descriptors more. Whoever has been idle for long makes room, those in HTTP/1.1 first."""
        cap = self.options.max_connections
        while len(self.connections) + len(self._joining) + DESCRIPTORS * len(self.others.tunnels) + more > cap:
            if self._evict():
                continue
            quietest = self.others.quietest()
            if quietest is None or self.loop.time() - quietest.quiet_since < _QUIET_S:
                return False
            quietest.cut()
            quietest.end()
        return True

    def _evict(self) -> bool:
        """Looks at some, those first that were not looked at for longest, so that many newcomers cost little each."""
        found: Connection | None = None
        for connection in tuple(islice(self.connections, _EVICT_LOOKS)):
            if connection.idle and (found is None or connection.idle_since < found.idle_since):
                found = connection
            del self.connections[connection]  # and to the end
            self.connections[connection] = None
        if found is None or self.loop.time() - found.idle_since < _QUIET_S:
            return False
        found.cut()
        self.ended(found)
        return True

    def _look(self) -> None:
        """At some connections: all of them within a second, and never thousands in one turn."""
        if not self._unseen:
            self._unseen = list(self.connections)
            self._slice = len(self._unseen) // _LOOKS + 1
        now = self.loop.time()
        seen, self._unseen = self._unseen[-self._slice :], self._unseen[: -self._slice]
        for connection in seen:
            if connection in self.connections:
                connection.look(now)
        self._timer = self.loop.call_later(_LOOK_S / _LOOKS, self._look)

    async def close(self) -> None:
        """Listens no more, tells streams to end, lets requests under way finish, then ends every connection."""
        self.front.stopping.set()
        listening, self._listening = self._listening, []
        for each in listening:
            self.loop.remove_reader(each)
            each.close()
        await self.front.streams.close()
        if not listening:
            return
        for connection in tuple(self.connections):
            connection.finish()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.front.drained(), self.options.drain_s)
        await asyncio.gather(self.others.close(), self._closed())
        if self._timer is not None:
            self._timer.cancel()
        self.port = 0

    async def _closed(self) -> None:
        """Every client has what it was answered, or has had its time."""
        if self.connections:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), LINGER_S)
        for task in self._joining:
            task.cancel()
        for connection in tuple(self.connections):
            connection.transport.abort()


def _tls(options: HttpOptions) -> ssl.SSLContext | None:
    if not (options.tls_cert or options.tls_key):
        return None
    if not (options.tls_cert and options.tls_key):
        raise SettingsError("tls_cert and tls_key belong together: set both, or none")
    for name, path in (("tls_cert", options.tls_cert), ("tls_key", options.tls_key)):
        if not Path(path).is_file():
            raise SettingsError(f"setting {name}: there is no file {path}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    except (ssl.SSLError, OSError) as error:
        raise SettingsError(f"settings tls_cert and tls_key cannot be used: {error}") from error
    return context

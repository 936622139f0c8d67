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
import socket
import ssl
from pathlib import Path
from typing import Final

from esker.errors import SettingsError
from esker.fronts.access import KeyRing
from esker.fronts.http.front import Front
from esker.fronts.http.options import HttpOptions
from esker.fronts.http.table import ROUTES
from esker.fronts.http.wire.connection import Connection
from esker.fronts.http.wire.heads import Heads
from esker.fronts.http.wire.others import Others
from esker.fronts.listening import listen
from esker.node.interface import Broker

LINGER_S: Final = 1.0  # how long clients have at the end to take what they were answered; then connections are cut
_LOOK_S: Final = 1.0  # how often connections are looked for that do not get on
_KEEPALIVE_S: Final = 300  # a peer that vanished is noticed in the end


class HttpServer:
    others: Others  # who speaks what is not HTTP/1.1

    def __init__(self, broker: Broker, options: HttpOptions | None = None, keys: KeyRing | None = None) -> None:
        self.options = options or HttpOptions()
        self.front = Front(broker, self.options, keys or KeyRing(), ROUTES)
        self.port = 0  # that it listens on; 0 when it does not
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.heads = Heads()
        self.head_s = self.options.header_read_timeout_ms / 1000
        self._listeners: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()  # there was a moment without any connection

    async def start(self, host: str, port: int) -> None:
        """Raises OSError when it cannot listen there, SettingsError when its certificate cannot be used."""
        context = _tls(self.options)
        listening = await listen(host, port, self.options.accept_backlog)
        self.others = Others(self.front, self.options.accept_backlog, self.head_s)
        await self.others.started()
        self.port = listening[0].getsockname()[1]
        self.front.doors.listens(host, [each.getsockname()[0] for each in listening])
        for each in listening:
            # Accepted sockets inherit these.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
            self._listeners.append(
                await self.loop.create_server(
                    lambda: Connection(self), sock=each, backlog=self.options.accept_backlog, ssl=context
                )
            )
        self._look()

    def ended(self, connection: Connection) -> None:
        """It is no longer ours: it was lost, or handed on."""
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    def _look(self) -> None:
        now = self.loop.time()
        for connection in tuple(self.connections):
            connection.look(now)
        self._timer = self.loop.call_later(_LOOK_S, self._look)

    async def close(self) -> None:
        """Listens no more, tells streams to end, lets requests under way finish, then ends every connection."""
        self.front.stopping.set()
        for listener in self._listeners:
            listener.close()
        await self.front.streams.close()
        if not self._listeners:
            return
        for connection in tuple(self.connections):
            connection.finish()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.front.drained(), self.options.drain_s)
        await asyncio.gather(self.others.close(), self._closed())
        if self._timer is not None:
            self._timer.cancel()
        self._listeners.clear()
        self.port = 0

    async def _closed(self) -> None:
        """Every client has what it was answered, or has had its time."""
        if self.connections:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), LINGER_S)
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

"""The listening side of the HTTP front: HTTP/1.1, cleartext HTTP/2 and WebSocket on one port, in the node's own loop.

    server = HttpServer(broker, options, keys)
    await server.start("127.0.0.1", 4000)      # port 0 picks a free one; `server.port` tells
    ...
    await server.close()

granian reads and writes the sockets on a thread of its own, in Rust, and runs the application on this loop. Left to
itself it would share the port with any process that asks for the same (SO_REUSEPORT), and would not say which port it
got; so the socket is bound here and handed over.

It must be made on the loop that runs it, and closed before the broker is: its gates decide when replies leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings, HTTP2Settings
from granian.net import SocketHolder  # type: ignore[attr-defined]  # re-exported without saying so
from granian.server.embed import Server

from esker.errors import SettingsError
from esker.fronts.access import KeyRing
from esker.fronts.http.front import Front
from esker.fronts.http.options import HttpOptions
from esker.fronts.http.table import ROUTES
from esker.node.interface import Broker

MIB: Final = 1024 * 1024
_H2_STREAMS: Final = 1024
_PING_S: Final = 20
LINGER_S: Final = 1.0  # how long clients have at the end to take what they were answered; then connections are cut


class _Embedded(Server):
    """granian on a socket that is bound already, which it owns from then on."""

    def __init__(self, listening: socket.socket, backlog: int, **options: object) -> None:
        super().__init__(backlog=backlog, **options)  # type: ignore[arg-type]  # some thirty, each of its own type
        self._listening = listening
        self._backlog = backlog

    def _init_shared_socket(self) -> None:
        # Its stub tells neither what it takes nor what may be assigned here.
        holder = SocketHolder(self._listening.detach(), False, self._backlog)  # type: ignore[call-arg]
        self._shd = holder  # type: ignore[assignment]
        self._ssp = None


class HttpServer:
    def __init__(self, broker: Broker, options: HttpOptions | None = None, keys: KeyRing | None = None) -> None:
        self.options = options or HttpOptions()
        self.front = Front(broker, self.options, keys or KeyRing(), ROUTES)
        self.port = 0  # that it listens on; 0 when it does not
        self._server: _Embedded | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> None:
        """Raises OSError when it cannot listen there, SettingsError when its certificate cannot be used."""
        certificate, key = _tls(self.options)
        listening = await _listen(host, port)
        self.port = listening.getsockname()[1]
        serve = self._serve(self.front)
        self._server = _Embedded(
            listening,
            self.options.accept_backlog,
            target=serve,
            address=host,
            port=self.port,
            interface=Interfaces.ASGINL,
            http=HTTPModes.auto,
            websockets=True,
            log_enabled=False,
            http1_settings=HTTP1Settings(header_read_timeout=self.options.header_read_timeout_ms),
            http2_settings=HTTP2Settings(
                initial_connection_window_size=4 * MIB,
                initial_stream_window_size=1 * MIB,
                keep_alive_interval=_PING_S,
                keep_alive_timeout=_PING_S,
                max_concurrent_streams=_H2_STREAMS,
            ),
            ssl_cert=certificate,
            ssl_key=key,
        )
        self._serving = asyncio.create_task(self._server.serve(), name="http")
        await asyncio.sleep(0)  # it listens from its first step on; a failure shows here
        if self._serving.done():
            self._serving.result()

    def _serve(self, front: Front) -> Callable[..., Awaitable[None]]:
        async def application(scope: dict[str, object], receive: object, send: object) -> None:
            await front(scope, receive, send)  # type: ignore[arg-type]  # granian's own types, of the same shape

        return application

    async def close(self) -> None:
        """Listens no more, tells streams to end, lets requests under way finish, then ends every connection."""
        self.front.stopping.set()
        await self.front.streams.close()  # granian would cut streams before they can say so
        if self._server is None or self._serving is None:
            return
        self._server.stop()  # type: ignore[no-untyped-call]  # granian types most of itself, not this
        await self._drain(self._serving)
        self._server = self._serving = None
        self.port = 0

    async def _drain(self, serving: asyncio.Task[None]) -> None:
        """granian ends when every connection has: for one whose client takes nothing, that is never. What it holds for
        them it does not tell, so clients get a moment once there is nothing left to answer."""
        drained = asyncio.create_task(self.front.drained())
        await asyncio.wait((serving, drained), timeout=self.options.drain_s, return_when=asyncio.FIRST_COMPLETED)
        drained.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(serving, LINGER_S)


async def _listen(host: str, port: int) -> socket.socket:
    """Bound, and so known to be free; granian begins to listen on it."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or "127.0.0.1", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
        listening.bind(address)
        listening.listen(1024)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def _tls(options: HttpOptions) -> tuple[Path | None, Path | None]:
    if not (options.tls_cert or options.tls_key):
        return None, None
    if not (options.tls_cert and options.tls_key):
        raise SettingsError("tls_cert and tls_key belong together: set both, or none")
    paths = Path(options.tls_cert), Path(options.tls_key)
    for name, path in zip(("tls_cert", "tls_key"), paths, strict=True):
        if not path.is_file():
            raise SettingsError(f"setting {name}: there is no file {path}")
    return paths

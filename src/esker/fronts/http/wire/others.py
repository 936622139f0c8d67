"""The server of HTTP/2 and WebSocket: granian, on a socket that only this process knows.

granian reads and writes on a thread of its own, in Rust, and runs the application on this loop. It can neither be given
a connection that somebody else accepted nor leave HTTP/1.1 to others on one port; so it listens on a socket without a
name in any folder, and connections that are its own come through tunnels.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings, HTTP2Settings
from granian.net import SocketHolder  # type: ignore[attr-defined]  # re-exported without saying so
from granian.server.embed import Server

from esker.fronts.http.wire.target import decoded_path

MIB: Final = 1024 * 1024
_H2_STREAMS: Final = 1024
_PING_S: Final = 20
LINGER_S: Final = 1.0  # how long clients have at the end to take what they were answered; then connections are cut

Application = Callable[..., Awaitable[None]]


class _Embedded(Server):
    """granian on a socket that is bound already, which it owns from then on."""

    def __init__(self, listening: socket.socket, backlog: int, **options: object) -> None:
        super().__init__(backlog=backlog, **options)  # type: ignore[arg-type]  # some thirty, each of its own type
        self._listening = listening
        self._backlog = backlog

    def _init_shared_socket(self) -> None:
        # Its stub tells neither what it takes nor what may be assigned here.
        holder = SocketHolder(self._listening.detach(), True, self._backlog)  # type: ignore[call-arg]
        self._shd = holder  # type: ignore[assignment]
        self._ssp = None


class Others:
    def __init__(self, application: Application, backlog: int, head_s: float) -> None:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind("")  # the kernel picks a name
        listening.listen(backlog)
        listening.setblocking(False)
        self.address: bytes = listening.getsockname()
        self.tunnels: set[asyncio.Transport] = set()  # to clients
        self._server = _Embedded(
            listening,
            backlog,
            target=_of_its_own(application),
            interface=Interfaces.ASGINL,
            http=HTTPModes.auto,
            websockets=True,
            backpressure=1 << 20,  # connections at a time; its own default is the backlog, and the next one would hang
            log_enabled=False,
            http1_settings=HTTP1Settings(header_read_timeout=int(head_s * 1000)),
            http2_settings=HTTP2Settings(
                initial_connection_window_size=4 * MIB,
                initial_stream_window_size=1 * MIB,
                keep_alive_interval=_PING_S * 1000,  # in milliseconds, the other one in seconds
                keep_alive_timeout=_PING_S,
                max_concurrent_streams=_H2_STREAMS,
            ),
        )
        self._serving = asyncio.create_task(self._server.serve(), name="http/2")

    async def started(self) -> None:
        """It listens from its first step on; a failure shows here."""
        await asyncio.sleep(0)
        if self._serving.done():
            self._serving.result()

    async def close(self) -> None:
        """For a client that takes nothing granian would wait for ever; what it holds for them it does not tell."""
        self._server.stop()  # type: ignore[no-untyped-call]  # granian types most of itself, not this
        await asyncio.wait({self._serving}, timeout=LINGER_S)
        for client in tuple(self.tunnels):
            client.abort()
        await asyncio.wait({self._serving}, timeout=LINGER_S)


def _of_its_own(application: Application) -> Application:
    """granian wants a function, and names it."""

    async def serve(scope: dict[str, object], receive: object, send: object) -> None:
        raw = scope["raw_path"]
        if isinstance(raw, bytes) and b"%" in raw:
            scope = {**scope, "path": decoded_path(raw)}  # granian's has its slashes decoded too
        await application(scope, receive, send)

    return serve

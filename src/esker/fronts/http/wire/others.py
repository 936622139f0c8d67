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

from esker.fronts.http.calls import Receive, Send
from esker.fronts.http.peers import PEER
from esker.fronts.http.wire.carried import PIECE_BYTES, Carried, CarrierLimits
from esker.fronts.http.wire.heads import HEAD_BYTES_MAX
from esker.fronts.http.wire.marking import NAME
from esker.fronts.http.wire.target import decoded_path
from esker.fronts.http.wire.tunnel import Tunnel

KIB: Final = 1024
_H2_STREAMS: Final = 100  # of one connection: the least that clients may expect
_PING_S: Final = 20
_LOOK_S: Final = 1.0  # how often tunnels are looked at
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
    def __init__(self, application: Application, limits: CarrierLimits) -> None:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind("")  # the kernel picks a name
        listening.listen(limits.backlog)
        listening.setblocking(False)
        self.address: bytes = listening.getsockname()
        self.loop = asyncio.get_running_loop()
        self.limits = limits
        self.arrivals = limits.arrivals
        self.message_bytes_max = limits.body_bytes_max
        self.tunnels: dict[bytes, Tunnel] = {}  # by their marks
        self._server = _Embedded(
            listening,
            limits.backlog,
            target=_of_its_own(self, application),
            interface=Interfaces.ASGINL,
            http=HTTPModes.auto,
            websockets=True,
            backpressure=1 << 20,  # connections at a time; its own default is the backlog, and the next one would hang
            log_enabled=False,
            http1_settings=HTTP1Settings(
                header_read_timeout=int(limits.head_s * 1000), max_buffer_size=2 * HEAD_BYTES_MAX
            ),
            http2_settings=HTTP2Settings(
                initial_connection_window_size=1024 * KIB,
                initial_stream_window_size=512 * KIB,
                keep_alive_interval=_PING_S * 1000,  # in milliseconds, the other one in seconds
                keep_alive_timeout=_PING_S,
                max_concurrent_streams=_H2_STREAMS,
                max_headers_size=HEAD_BYTES_MAX,
                max_send_buffer_size=PIECE_BYTES,
            ),
        )
        self._serving = asyncio.create_task(self._server.serve(), name="http/2")
        self._timer = self.loop.call_later(_LOOK_S, self._look)

    async def started(self) -> None:
        """It listens from its first step on; a failure shows here."""
        await asyncio.sleep(0)
        if self._serving.done():
            self._serving.result()

    def quietest(self) -> Tunnel | None:
        """The one whose client has said nothing for longest."""
        return min(self.tunnels.values(), key=lambda each: each.quiet_since, default=None)

    def _look(self) -> None:
        now = self.loop.time()
        for tunnel in tuple(self.tunnels.values()):
            tunnel.look(now, self.limits.stall_s)
        self._timer = self.loop.call_later(_LOOK_S, self._look)

    async def close(self) -> None:
        """For a client that takes nothing granian would wait for ever; what it holds for them it does not tell."""
        self._server.stop()  # type: ignore[no-untyped-call]  # granian types most of itself, not this
        await asyncio.wait({self._serving}, timeout=LINGER_S)
        for tunnel in tuple(self.tunnels.values()):
            tunnel.cut()
        await asyncio.wait({self._serving}, timeout=LINGER_S)
        self._timer.cancel()


def _of_its_own(others: Others, application: Application) -> Application:
    """granian wants a function, and names it."""

    async def serve(scope: dict[str, object], receive: Receive, send: Send) -> None:
        tunnel = _tunnel_of(others, scope)
        if tunnel is None:
            return  # somebody found this socket and came by no tunnel, or its client has left
        scope[PEER] = tunnel.peer
        raw = scope["raw_path"]
        if isinstance(raw, bytes) and b"%" in raw:
            scope["path"] = decoded_path(raw)  # granian's has its slashes decoded too
        carried = Carried(others.limits, tunnel, scope, receive, send)
        if not await carried.refused():
            await application(scope, carried.receive, carried.send)

    return serve


def _tunnel_of(others: Others, scope: dict[str, object]) -> Tunnel | None:
    """By the last header of that name, which is ours. The application sees none of them."""
    headers = scope["headers"]
    assert isinstance(headers, list)
    marks = [value for name, value in headers if name == NAME]
    scope["headers"] = [each for each in headers if each[0] != NAME]
    return others.tunnels.get(marks[-1]) if marks else None

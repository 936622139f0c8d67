"""One request that came through a tunnel: its body must get on, and its answer is given to granian in small pieces.

granian takes five messages of an answer before it lets us wait, however large they are, and keeps them until its client
gives it a window. So a large answer goes in pieces of `PIECE_BYTES`, the last five of which are one byte each: when all
were taken, next to nothing of it is left inside. Until then it is counted (`Unsent`), and a client that takes none of
it for `stall_s` is cut with all its streams, because granian gives its memory back only with the connection.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from esker.fronts.http.arrivals import Arrivals
from esker.fronts.http.calls import Message, Receive, Send
from esker.fronts.http.errors import HttpError
from esker.fronts.http.unsent import MOVED_BYTES, Unsent

if TYPE_CHECKING:
    from esker.fronts.http.wire.tunnel import Tunnel

PIECE_BYTES: Final = 16 * 1024  # 100 streams may each leave one of them behind
_TAIL: Final = 5  # messages that granian takes without giving them on
_CONNECTION_SHARE: Final = 4  # one connection may have this part of all unsent answers


@dataclass(frozen=True, slots=True)
class CarrierLimits:
    """What the server of the other protocols keeps to."""

    backlog: int
    head_s: float
    body_s: float  # in each such time a body ends, or brings `body_bytes_min`
    body_bytes_min: int
    body_bytes_max: int
    stall_s: float
    unsent: Unsent
    arrivals: Arrivals


class Carried:
    """`receive` and `send` of one request, or of one WebSocket."""

    __slots__ = (
        "_arrived", "_limits", "_receive", "_scope", "_send", "_start", "_tunnel", "_whole", "_window_ends",
        "moved_at",
    )  # fmt: skip

    def __init__(
        self, limits: CarrierLimits, tunnel: Tunnel, scope: dict[str, object], receive: Receive, send: Send
    ) -> None:
        self._limits = limits
        self._tunnel = tunnel
        self._scope = scope
        self._receive = receive
        self._send = send
        self._start: Message | None = None
        self._whole = False
        self._arrived = 0  # bytes of the body in this window
        self._window_ends = 0.0
        self.moved_at = 0.0

    async def refused(self) -> bool:
        """Whether it was, because this client leaves too much that it asked for."""
        if self._tunnel.owed * _CONNECTION_SHARE <= self._limits.unsent.limit or self._scope["type"] != "http":
            return False
        error = HttpError(503, "busy", "this connection has too many answers that its client does not take")
        body = error.body()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *error.headers]
        await self._send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
        return True

    async def receive(self) -> Message:
        """Raises 408 when too little of a body comes in its time."""
        if self._scope["type"] != "http":
            message = await self._receive()
            self._tunnel.heard()
            return message
        if self._whole:
            return await self._receive()
        now = asyncio.get_running_loop().time()
        if not self._window_ends or self._arrived >= self._limits.body_bytes_min:
            self._window_ends, self._arrived = now + self._limits.body_s, 0
        try:
            async with asyncio.timeout_at(self._window_ends):
                message = await self._receive()
        except TimeoutError:
            raise HttpError(408, "request_timeout", "the body of this request came too slowly") from None
        body = message.get("body", b"")
        self._arrived += len(body) if isinstance(body, bytes) else 0
        self._whole = not message.get("more_body")
        return message

    async def send(self, message: Message) -> None:
        content = message.get("body") or message.get("text")
        if message["type"] == "http.response.start" and self._is_measured(message):
            self._start = message  # until its body comes: that must be counted before anything is waited for
            return
        if not isinstance(content, bytes | str) or len(content) <= PIECE_BYTES:
            await self._send_start()
            await self._send(message)
            return
        size = len(content)
        self._tunnel.owed += size
        self.moved_at = asyncio.get_running_loop().time()
        self._limits.unsent.owe(self, size)
        self._tunnel.sending.add(self)
        try:
            await self._send_start()
            if isinstance(content, bytes):
                await self._send_pieces(content, bool(message.get("more_body")))
            else:
                await self._send(message)
        finally:
            self._tunnel.sending.discard(self)
            self._tunnel.owed -= size
            self._limits.unsent.settle(self)

    @staticmethod
    def _is_measured(start: Message) -> bool:
        headers = start["headers"]
        assert isinstance(headers, list)
        return any(name == b"content-length" for name, _ in headers)

    async def _send_start(self) -> None:
        if self._start is not None:
            start, self._start = self._start, None
            await self._send(start)

    async def _send_pieces(self, body: bytes, more: bool) -> None:
        loop = asyncio.get_running_loop()
        ends = [*range(PIECE_BYTES, len(body) - _TAIL, PIECE_BYTES), *range(len(body) - _TAIL, len(body) + 1)]
        start = moved = 0
        for end in ends:
            last = end == len(body)
            await self._send({"type": "http.response.body", "body": body[start:end], "more_body": more or not last})
            start = end
            if start >= moved + MOVED_BYTES:
                moved, self.moved_at = start, loop.time()

    def cut(self) -> None:
        self._tunnel.cut()

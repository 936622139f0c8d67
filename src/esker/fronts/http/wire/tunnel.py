"""The way of HTTP/2 and WebSocket: bytes of a client to granian and back, unread.

Each side is read only while the other has room, so a slow client slows its server, and nothing piles up between them.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from esker.fronts.http.wire.others import Others


class _Relay(asyncio.Protocol):
    """One side. What it brings goes to the other."""

    __slots__ = ("_far",)

    def __init__(self, far: asyncio.Transport) -> None:
        self._far = far

    def data_received(self, data: bytes) -> None:
        self._far.write(data)

    def pause_writing(self) -> None:
        self._far.pause_reading()

    def resume_writing(self) -> None:
        if not self._far.is_closing():
            self._far.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._far.close() if error is None else self._far.abort()


class _ClientRelay(_Relay):
    """The client's side, which is known until it ends."""

    __slots__ = ("_client", "_tunnels")

    def __init__(self, far: asyncio.Transport, client: asyncio.Transport, tunnels: set[asyncio.Transport]) -> None:
        super().__init__(far)
        self._client = client
        self._tunnels = tunnels
        tunnels.add(client)

    def connection_lost(self, error: Exception | None) -> None:
        self._tunnels.discard(self._client)
        super().connection_lost(error)


async def dig(others: Others, client: asyncio.Transport, opening: bytes) -> None:
    """Connects a client, which is not being read, to the server of the other protocols; that one gets what the client
    said so far."""
    try:
        near = await _connect(others.address, client)
    except OSError:  # no more files, or it has more to accept than it can take, or is about to end
        client.abort()
        return
    if client.is_closing():
        near.close()
        return
    client.set_protocol(_ClientRelay(near, client, others.tunnels))
    client.resume_reading()
    near.write(opening)  # which may stop the client again


async def _connect(address: bytes, client: asyncio.Transport) -> asyncio.Transport:
    inner = socket.socket(socket.AF_UNIX)
    try:
        inner.setblocking(False)
        inner.connect(address)
        near, _ = await asyncio.get_running_loop().create_unix_connection(lambda: _Relay(client), sock=inner)
    except OSError:
        inner.close()
        raise
    return near

"""The way of HTTP/2 and WebSocket: bytes of a client to granian and back, unread.

Each side is read only while the other has room, so a slow client slows its server, and nothing piles up between them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from esker.fronts.http.wire.others import Others


class _Relay(asyncio.Protocol):
    """One side. What it brings goes to the other."""

    __slots__ = ("_ended", "_far")

    def __init__(self, far: asyncio.Transport, ended: Callable[[], None]) -> None:
        self._far = far
        self._ended = ended

    def data_received(self, data: bytes) -> None:
        self._far.write(data)

    def pause_writing(self) -> None:
        self._far.pause_reading()

    def resume_writing(self) -> None:
        if not self._far.is_closing():
            self._far.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._far.close() if error is None else self._far.abort()
        self._ended()


async def dig(others: Others, client: asyncio.Transport, opening: bytes) -> None:
    """Connects a client to the server of the other protocols, and gives it what the client said so far."""
    client.pause_reading()
    inner = socket.socket(socket.AF_UNIX)
    inner.setblocking(False)
    try:
        inner.connect(others.address)
    except OSError:  # it has more to accept than it can take, or is about to end
        inner.close()
        client.abort()
        return
    ended = partial(others.tunnels.discard, client)
    near, _ = await asyncio.get_running_loop().create_unix_connection(lambda: _Relay(client, ended), sock=inner)
    if client.is_closing():
        near.close()
        return
    client.set_protocol(_Relay(near, ended))
    others.tunnels.add(client)
    near.write(opening)
    client.resume_reading()

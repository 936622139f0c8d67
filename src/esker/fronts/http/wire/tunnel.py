"""The way of HTTP/2 and WebSocket: bytes of a client to granian and back.

Each side is read only while the other has room, and a client is not read while it does not take what it is sent: what
it says would be answered too (granian answers pings by itself, and keeps the answers), so its questions wait with it. A
client that takes nothing for `STALL_S` is cut. What is between the two sides is therefore bounded.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from typing import TYPE_CHECKING, Final

from esker.fronts.http.wire.marking import Marking

if TYPE_CHECKING:
    from esker.fronts.http.arrivals import Arriving
    from esker.fronts.http.peers import Peer
    from esker.fronts.http.wire.carried import Carried
    from esker.fronts.http.wire.others import Others

DESCRIPTORS: Final = 3  # of one: the client's, and both ends inside
_INNER_BYTES: Final = 64 * 1024  # of the sockets between granian and us: what is under way inside is more memory
_UNCOUNTED_BYTES: Final = 64 * 1024  # of a message that is arriving


class Tunnel:
    """One client of the server of the other protocols. `mark` is the secret by which that one knows it."""

    __slots__ = (
        "_client_full", "_near_full", "_open", "_others", "_reads_client", "_stalls_since", "_unheard", "_unsent",
        "arriving", "client", "mark", "marking", "near", "owed", "peer", "quiet_since", "sending",
    )  # fmt: skip
    near: asyncio.Transport  # to granian, once it is connected

    def __init__(self, others: Others, client: asyncio.Transport, peer: Peer) -> None:
        self._others = others
        self.client = client
        self.peer = peer
        self.mark = secrets.token_hex(8).encode()
        self.marking: Marking | None = None  # of HTTP/2
        self.owed = 0  # bytes of answers that the client has not taken
        self.sending: set[Carried] = set()  # large answers
        self.arriving: Arriving | None = None  # the message of a WebSocket
        self._unheard = 0  # bytes of it
        self._client_full = self._near_full = False
        self._reads_client = False
        self._open = 0  # sides
        self._unsent = 0
        self.quiet_since = self._stalls_since = others.loop.time()
        others.tunnels[self.mark] = self

    # -- to granian

    def said(self, data: bytes) -> None:
        """The client sent this."""
        self.quiet_since = self._others.loop.time()
        if self.marking is not None:
            data = self.marking.marked(data)
        else:
            self._unheard += len(data)
            if self._unheard > _UNCOUNTED_BYTES and not self._room_for(len(data)):
                self.cut()
                return
        self.near.write(data)

    def _room_for(self, size: int) -> bool:
        if self._unheard > self._others.message_bytes_max:
            return False
        if self.arriving is None:
            self.arriving = self._others.arrivals.begin(self.cut)
            size = self._unheard
        return self.arriving.add(size)

    def heard(self) -> None:
        """The application has a message of this WebSocket."""
        self._unheard = 0
        if self.arriving is not None:
            self.arriving.end()
            self.arriving = None

    # -- flow

    def client_full(self, full: bool) -> None:
        self._client_full = full
        if not self.near.is_closing():
            self.near.pause_reading() if full else self.near.resume_reading()
        self._flow()

    def near_full(self, full: bool) -> None:
        self._near_full = full
        self._flow()

    def _flow(self) -> None:
        reads = not (self._client_full or self._near_full)
        if reads != self._reads_client and not self.client.is_closing():
            self._reads_client = reads
            self.client.resume_reading() if reads else self.client.pause_reading()

    def look(self, now: float, stall_s: float) -> None:
        """Cuts a client that takes nothing, and a server that does not take the last words of one that has left."""
        if self._open == 0:
            return  # it is being connected
        unsent = self.client.get_write_buffer_size() if self._open == 2 else -1  # -1: half of it has ended
        if unsent != self._unsent or not unsent:
            self._unsent, self._stalls_since = unsent, now
        stalls_since = min((self._stalls_since, *(each.moved_at for each in self.sending)))
        if now - stalls_since > stall_s:
            self.cut()
            self.near.abort()

    # -- beginning and end

    async def dig(self, opening: bytes, marking: Marking | None) -> None:
        """Connects the client, which is not being read, to the server of the other protocols; that one gets what the
        client said so far."""
        try:
            self.near = await self._connect()
        except OSError:  # no more files, or it has more to accept than it can take, or is about to end
            self.end()
            self.client.abort()
            return
        if self.client.is_closing():
            self.end()
            self.near.close()
            return
        self.marking = marking
        self._open = 2
        self.client.set_protocol(_ClientSide(self))
        self._flow()
        self.near.write(opening if marking is None else marking.marked(opening))  # which may stop the client again

    async def _connect(self) -> asyncio.Transport:
        inner = socket.socket(socket.AF_UNIX)
        try:
            inner.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _INNER_BYTES)
            inner.setblocking(False)
            inner.connect(self._others.address)
            near, _ = await self._others.loop.create_unix_connection(lambda: _NearSide(self), sock=inner)
        except OSError:
            inner.close()
            raise
        return near

    def cut(self) -> None:
        self.client.abort()

    def lost(self, other: asyncio.Transport, error: Exception | None) -> None:
        """One side has ended. The other one gets what was said, and then ends too."""
        self._open -= 1
        other.close() if error is None else other.abort()
        if not self._open:
            self.end()

    def end(self) -> None:
        self.heard()
        self._others.tunnels.pop(self.mark, None)


class _ClientSide(asyncio.Protocol):
    __slots__ = ("_tunnel",)

    def __init__(self, tunnel: Tunnel) -> None:
        self._tunnel = tunnel

    def data_received(self, data: bytes) -> None:
        self._tunnel.said(data)

    def pause_writing(self) -> None:
        self._tunnel.client_full(True)

    def resume_writing(self) -> None:
        self._tunnel.client_full(False)

    def connection_lost(self, error: Exception | None) -> None:
        self._tunnel.lost(self._tunnel.near, error)


class _NearSide(asyncio.Protocol):
    """granian's."""

    __slots__ = ("_tunnel",)

    def __init__(self, tunnel: Tunnel) -> None:
        self._tunnel = tunnel

    def data_received(self, data: bytes) -> None:
        self._tunnel.client.write(data)

    def pause_writing(self) -> None:
        self._tunnel.near_full(True)

    def resume_writing(self) -> None:
        self._tunnel.near_full(False)

    def connection_lost(self, error: Exception | None) -> None:
        self._tunnel.lost(self._tunnel.client, error)

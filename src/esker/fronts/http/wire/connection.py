"""One client of the HTTP front, in HTTP/1.1: finds its requests, answers them one after the other.

    bytes ─► llhttp ─► Exchange ─► the front, as a task ─► Exchange ─► bytes

It runs in the node's own loop. A request that came whole is answered without another thread, which is most of what
makes it quick (decision 0011). What speaks HTTP/2, or asks for a WebSocket, is told by its first bytes and handed on,
byte by byte, to a server that knows these (tunnel.py).

Requests that come before the one ahead of them was answered wait; past `WAITING_MAX` nothing more is read. A body that
nobody asks for is thrown away, up to a bound. What is no HTTP is answered once, and then the connection ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from esker.fronts.http.calls import ClientLeft
from esker.fronts.http.errors import HttpError
from esker.fronts.http.wire.exchange import BUFFER_MAX, Exchange, refusal
from esker.fronts.http.wire.tunnel import dig

if TYPE_CHECKING:
    from esker.fronts.http.server import HttpServer

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES_MAX: Final = 256 * 1024
WAITING_MAX: Final = 16
DISCARD_BYTES_MAX: Final = 256 * 1024 * 1024
PARTING_S: Final = 2.0  # to take the last answer, for a client that is still sending


class Connection(asyncio.Protocol):
    __slots__ = (
        "_answering", "_broken", "_deadline", "_discarded", "_head_bytes", "_in_head", "_opening", "_parser",
        "_reading", "_room", "_socket", "_stopped", "_task", "_waiting", "closing", "full", "left", "loop", "lost",
        "server", "transport",
    )  # fmt: skip
    transport: asyncio.Transport

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self.loop = server.loop
        self.left = False  # the client has said that nothing more will come
        self.lost = False  # nothing can be sent any more
        self.closing = False  # the answer under way is the last
        self.full = False  # the transport has no room
        self._parser = HttpRequestParser(self)
        self._opening: bytes | None = b""  # until it is known what is spoken
        self._head_bytes = 0
        self._reading: Exchange | None = None  # the request that arrives
        self._answering: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._socket: Exchange | None = None  # the request that wants to go on as a WebSocket
        self._broken: HttpError | None = None  # nothing that comes can be understood any more
        self._discarded = 0
        self._stopped = False  # reading
        self._room: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._in_head = False
        self._deadline = self.loop.time() + server.head_s  # of a head, or a parting; 0: it may take its time

    # -- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods only
        self.server.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.server.ended(self)
        self.left = self.lost = True
        self._wake()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def eof_received(self) -> bool:
        """Who hangs up looks like who only has nothing more to say: what is under way is answered, waiting ends."""
        self.left = True
        self._wake()
        return self._answering is not None

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def room(self) -> None:
        """Returns when the transport takes more. Raises `ClientLeft` when it never will."""
        self._room = self.loop.create_future()
        try:
            await self._room
        finally:
            self._room = None
        if self.lost:
            raise ClientLeft("the client hung up")

    def _wake(self) -> None:
        if self._answering is not None:
            self._answering.wake()

    # -- what comes

    def data_received(self, data: bytes) -> None:
        if self._opening is not None:
            data = self._opening + data
            if PREFACE.startswith(data):
                self._opening = data  # not enough of it yet
                if len(data) < len(PREFACE):
                    return
            self._opening = None
            if data.startswith(PREFACE):
                self._hand_on(data)
                return
        if self._broken is None:
            self._parse(data)
        else:
            self._discard(len(data))

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
            return
        except HttpParserError as error:
            self._break(HttpError(400, "invalid_request", f"this is not HTTP: {error}"))
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._break(
                    HttpError(431, "headers_too_large", f"the head of a request has at most {HEAD_BYTES_MAX} bytes")
                )

    # Called by the parser, in this order.

    def on_message_begin(self) -> None:
        self._reading = Exchange(self)
        self._head_bytes = 0
        self._in_head = True
        self._deadline = self.loop.time() + self.server.head_s

    def on_url(self, url: bytes) -> None:
        assert self._reading is not None
        self._reading.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # or it is a trailer: nobody here asks for one
            assert self._reading is not None
            self._reading.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        exchange, parser = self._reading, self._parser
        assert exchange is not None
        self._in_head, self._deadline = False, 0.0
        exchange.headed(parser.get_method(), parser.get_http_version() == "1.0", parser.should_keep_alive())
        if parser.should_upgrade() and self._asks_socket(exchange):
            self._socket = exchange
            return
        if self._answering is None:
            self._answer(exchange)
        else:
            self._waiting.append(exchange)
            self.flow()

    def on_body(self, chunk: bytes) -> None:
        exchange = self._reading
        assert exchange is not None
        if exchange.finished:
            self._discard(len(chunk))
            return
        exchange.feed(chunk)
        if exchange.buffered > BUFFER_MAX:
            self.flow()

    def on_message_complete(self) -> None:
        exchange = self._reading
        assert exchange is not None
        exchange.complete = True
        self._reading = None
        if exchange.finished:
            self._next(exchange)
        else:
            exchange.wake()

    def flow(self) -> None:
        """Reads on, or not, by what waits here."""
        reading = self._reading
        stop = len(self._waiting) > WAITING_MAX or (reading is not None and reading.buffered > BUFFER_MAX)
        if stop != self._stopped and not self.transport.is_closing():
            self._stopped = stop
            if stop:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    # -- answers

    def _answer(self, exchange: Exchange) -> None:
        self._answering = exchange
        self._task = self.loop.create_task(self._run(exchange))

    async def _run(self, exchange: Exchange) -> None:
        try:
            await self.server.front(exchange.scope(), exchange.receive, exchange.send)
        except ClientLeft:
            return
        finally:
            if not exchange.finished:
                self.transport.abort()  # its answer broke off: whoever reads it must not take it for whole

    def answered(self, exchange: Exchange) -> None:
        """An exchange has written the last of its answer."""
        if not exchange.keep_alive or (self.left and not exchange.complete):
            self._part(heard=exchange.complete)
        elif exchange.complete:
            self._next(exchange)
        else:
            exchange.drop()
            self.flow()

    def _next(self, exchange: Exchange) -> None:
        """Both halves of an exchange have ended."""
        if exchange is not self._answering:
            return
        self._answering = self._task = None
        self._discarded = 0
        if self._waiting:
            self._answer(self._waiting.popleft())
            self.flow()
        elif self._broken is not None:
            self._refuse(self._broken)
        elif self.closing or self.left:
            self.transport.close()

    def _break(self, error: HttpError) -> None:
        """What came is no HTTP. It is said behind the answers that are owed."""
        self._broken = error
        broken, self._reading = self._reading, None
        self._in_head, self._deadline = False, 0.0
        if broken is not None and broken is self._answering:
            self.transport.abort()  # in the middle of a body, whose request is being answered
        elif self._answering is None:
            self._refuse(error)

    def _refuse(self, error: HttpError) -> None:
        self.transport.write(refusal(error))
        self._part(heard=False)

    def _part(self, heard: bool) -> None:
        """Ends the connection behind what was written. One that is still sending would lose the answer if its bytes
        were refused: it gets some time to notice."""
        self._answering = self._task = None
        self._waiting.clear()
        if heard or self.left or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._broken = self._broken or HttpError(400, "invalid_request", "this connection has ended")
        self._deadline = self.loop.time() + PARTING_S
        self.transport.write_eof()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > DISCARD_BYTES_MAX:
            self.transport.abort()

    # -- other protocols

    def _asks_socket(self, exchange: Exchange) -> bool:
        return (
            exchange.method == "GET"
            and self._answering is None
            and any(name == b"upgrade" and value.lower() == b"websocket" for name, value in exchange.headers)
        )

    def _upgrade(self, rest: bytes) -> None:
        """A request asks for another protocol. WebSocket is handed on; whatever else there is, we need not agree."""
        exchange = self._socket
        if exchange is None:
            self._parser = HttpRequestParser(self)
            if rest:
                self._parse(rest)
            return
        headers = b"".join(b"%b: %b\r\n" % header for header in exchange.headers)
        self._hand_on(b"GET %b HTTP/1.1\r\n%b\r\n%b" % (exchange.target, headers, rest))

    def _hand_on(self, opening: bytes) -> None:
        """From here on others speak with this client."""
        self.server.ended(self)
        self._task = self.loop.create_task(dig(self.server.others, self.transport, opening))

    # -- the end

    def look(self, now: float) -> None:
        """Ends it when it takes too long to send a head, or to go."""
        if self._deadline and now > self._deadline:
            self.transport.abort()

    def finish(self) -> None:
        """The node stops: what is under way is the last."""
        self.closing = True
        if self._answering is None:
            self.transport.close()

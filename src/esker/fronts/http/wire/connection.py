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
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from esker.fronts.guesses import address_of
from esker.fronts.http.calls import ClientLeft
from esker.fronts.http.errors import HttpError
from esker.fronts.http.peers import Peer
from esker.fronts.http.wire.exchange import BUFFER_MAX, Exchange, refusal
from esker.fronts.http.wire.tunnel import dig

if TYPE_CHECKING:
    from esker.fronts.http.server import HttpServer

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES_MAX: Final = 256 * 1024
WAITING_MAX: Final = 16
DISCARD_BYTES_MAX: Final = 256 * 1024 * 1024
STALL_S: Final = 30.0  # a client that takes nothing for this long is cut
PARTING_S: Final = 2.0  # to take the last answer, for a client that is still sending


class Connection(asyncio.Protocol):
    __slots__ = (
        "_answering", "_broken", "_deadline", "_discarded", "_got_on", "_head_bytes", "_in_head", "_offer",
        "_opening", "_parser", "_reading", "_room", "_stalls_since", "_stopped", "_tunnel", "_unsent", "_waiting",
        "closing", "full", "left", "loop", "lost", "peer", "server", "transport",
    )  # fmt: skip
    transport: asyncio.Transport
    peer: Peer

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self.loop = server.loop
        self.left = False  # the client has said that nothing more will come
        self.lost = False  # nothing can be sent any more
        self.closing = False  # the answer under way is the last
        self.full = False  # the transport has no room
        self._parser = HttpRequestParser(self)
        self._opening: bytes | None = b""  # until it is known what is spoken
        self._head_bytes = 0  # of a head, or of trailers, since anything else came
        self._got_on = False  # … with what is being parsed
        self._reading: Exchange | None = None  # the request that arrives
        self._answering: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._offer: Exchange | None = None  # the request that offers to go on in another protocol
        self._broken: HttpError | None = None  # nothing that comes can be understood any more
        self._discarded = 0
        self._stopped = False  # reading
        self._room: asyncio.Future[None] | None = None
        self._tunnel: asyncio.Task[None] | None = None
        self._in_head = False
        self._unsent = 0  # bytes, when it was looked at last
        self._stalls_since = 0.0  # no less are unsent
        self._deadline = self.loop.time() + server.head_s  # of a head, or a parting; 0: it may take its time

    # -- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods only
        self.peer = Peer(address_of(transport.get_extra_info("peername")))
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
        answering = self._answering
        owed = bool(self._waiting) or (answering is not None and not answering.finished)
        return owed and self.transport.can_write_eof()  # TLS has no half of a connection

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        elif self._answering is None and self._waiting and not self.transport.is_closing():
            self._answer(self._waiting.popleft())
            self.flow()

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
        if self._broken is not None:
            self._discard(len(data))
            return
        idle = self._answering is None and self._reading is None and not self.full and not self._waiting
        known = self.server.heads.split(data) if idle else None
        if known is not None:
            self._deadline = 0.0
            self._answer_at_once(Exchange.known(self, *known))
            return
        self._parse(data)
        answering = self._answering
        if answering is not None and not answering.begun and answering.task is None:
            if idle and answering.complete and self._reading is None and not self._waiting and self._broken is None:
                self.server.heads.learn(data, answering)
            self._answer_at_once(answering)

    def _parse(self, data: bytes) -> None:
        self._got_on = False
        rest: bytes | memoryview = data
        try:
            while rest:
                try:
                    self._parser.feed_data(rest)
                    break
                except HttpParserUpgrade as offer:
                    rest = self._decline(memoryview(rest)[offer.args[0] :])
        except HttpParserError as error:
            found = error.__context__  # what a callback of ours raised, if one did
            unread = HttpError(400, "invalid_request", f"this is not HTTP: {error}")
            self._break(found if isinstance(found, HttpError) else unread)
            return
        if self._got_on:
            self._head_bytes = 0  # how much of it belongs to a head that begins within is not known
        elif self._reading is not None:  # a head goes on, or trailers, or the extension of a chunk
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._break(
                    HttpError(431, "headers_too_large", f"the head of a request has at most {HEAD_BYTES_MAX} bytes")
                )

    # Called by the parser, in this order.

    def on_message_begin(self) -> None:
        self._reading = Exchange(self)
        self._got_on = self._in_head = True
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
        exchange.headed(parser.get_method(), parser.get_http_version(), parser.should_keep_alive())
        if parser.should_upgrade():
            self._offer = exchange  # the parser takes what follows for another protocol: see `_upgrade`
        elif self._answering is None and not self.full:
            self._answering = exchange  # and begun when all is parsed that has come: most requests come whole
        else:
            self._waiting.append(exchange)
            self.flow()

    def on_body(self, chunk: bytes) -> None:
        exchange = self._reading
        assert exchange is not None
        self._got_on = True
        if exchange.finished:
            self._discard(len(chunk))
            return
        exchange.feed(chunk)
        if not self._stopped and (exchange.buffered > BUFFER_MAX or exchange is not self._answering):
            self.flow()

    def on_message_complete(self) -> None:
        exchange = self._reading
        assert exchange is not None
        exchange.complete = True
        self._reading = None
        if exchange is self._offer:
            return
        if self._stopped:
            self.flow()
        if exchange.finished:
            self._next(exchange)
        else:
            exchange.wake()

    def flow(self) -> None:
        """Reads on, or not, by what waits here."""
        reading = self._reading
        stop = (
            len(self._waiting) > WAITING_MAX
            or (reading is not None and reading.buffered > BUFFER_MAX)
            or sum(each.buffered for each in self._waiting) > BUFFER_MAX
        )
        if stop != self._stopped and not self.transport.is_closing():
            self._stopped = stop
            if stop:
                self.transport.pause_reading()
            else:
                if self._in_head:
                    self._deadline = self.loop.time() + self.server.head_s
                self.transport.resume_reading()

    # -- answers

    def _answer_at_once(self, exchange: Exchange) -> None:
        """As far as that is possible: one that came alone and whole may need no task."""
        if not exchange.complete or self._waiting:
            self._answer(exchange)
            return
        self._answering = exchange
        exchange.begun = True
        left = self.server.front.at_once(exchange)
        if left is not None:
            exchange.task = self.loop.create_task(self._run(exchange, left))

    def _answer(self, exchange: Exchange) -> None:
        """In a turn of the loop of its own: whoever sends many requests at once must not have it to himself."""
        self._answering = exchange
        exchange.task = self.loop.create_task(self._run(exchange, None))

    async def _run(self, exchange: Exchange, left: Awaitable[None] | None) -> None:
        """Answers it, or does what is left of that."""
        exchange.begun = True
        try:
            await (left or self.server.front(exchange.scope(), exchange.receive, exchange.send))
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
        self._answering = None
        self._discarded = 0
        if self._waiting:
            if not self.full:  # or it goes on when there is room
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
            if broken.finished:
                self._part(heard=False)
            elif broken.begun:
                self.transport.abort()  # in the middle of a body, whose request is being answered
            else:
                if broken.task is not None:
                    broken.task.cancel()  # nobody has seen it yet
                self._refuse(error)
            return
        if self._waiting and self._waiting[-1] is broken:
            self._waiting.pop()  # it will never be whole
        if self._answering is None and not self._waiting:
            self._refuse(error)

    def _refuse(self, error: HttpError) -> None:
        self.transport.write(refusal(error))
        self._part(heard=False)

    def _part(self, heard: bool) -> None:
        """Ends the connection behind what was written. One that is still sending would lose the answer if its bytes
        were refused: it gets some time to notice."""
        self._answering = None
        self._waiting.clear()
        if heard or self.left or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._broken = self._broken or HttpError(400, "invalid_request", "this connection has ended")
        self._reading = None
        self.flow()  # what it still sends is read, and thrown away
        self._deadline = self.loop.time() + PARTING_S
        self.transport.write_eof()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > DISCARD_BYTES_MAX:
            self.transport.abort()

    # -- other protocols

    def _decline(self, rest: memoryview) -> bytes | memoryview:
        """A request offers to go on in another protocol. WebSocket is taken up by others. To whatever else there is we
        need not agree: the request is read again as if it had not offered it, because its body was not looked for.

        Returns what is left to parse."""
        exchange, self._offer = self._offer, None
        assert exchange is not None
        if exchange.method == "CONNECT":
            self._break(HttpError(400, "invalid_request", "this is no proxy"))
            return b""
        offers = b"".join(value.lower() for name, value in exchange.headers if name == b"upgrade")
        socket = exchange.method == "GET" and offers == b"websocket" and self._answering is None and not self._waiting
        line = b"%b %b HTTP/%b\r\n" % (exchange.method.encode(), exchange.target, b"1.0" if exchange.old else b"1.1")
        headers = b"".join(b"%b: %b\r\n" % each for each in exchange.headers if socket or each[0] != b"upgrade")
        head = line + headers + b"\r\n"
        if socket:
            self._hand_on(head + bytes(rest))
            return b""
        self._parser = HttpRequestParser(self)
        self._parser.feed_data(head)
        return rest

    def _hand_on(self, opening: bytes) -> None:
        """From here on others speak with this client."""
        self.transport.pause_reading()  # at once: more may be read before the task begins
        self.server.ended(self)
        self._tunnel = self.loop.create_task(dig(self.server.others, self.transport, opening))

    # -- the end

    def look(self, now: float) -> None:
        """Ends it when it takes too long to send a head, to go, or to take anything of what it was answered."""
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent or not unsent:
            self._unsent, self._stalls_since = unsent, now
        if (self._deadline and now > self._deadline and not self._stopped) or now - self._stalls_since > STALL_S:
            self.transport.abort()
        elif self._reading is not None:
            self._reading.nudge()

    def finish(self) -> None:
        """The node stops: what is under way is the last."""
        self.closing = True
        if self._answering is None:
            self.transport.close()

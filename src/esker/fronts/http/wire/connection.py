"""One client of the HTTP front, in HTTP/1.1: finds its requests, answers them one after the other.

    bytes ─► llhttp ─► Exchange ─► the front, as a task ─► Exchange ─► bytes

It runs in the node's own loop. A request that came whole is answered without another thread, which is most of what
makes it quick (decision 0011). What speaks HTTP/2, or asks for a WebSocket, is told by its first bytes and handed on,
byte by byte, to a server that knows these (tunnel.py).

Requests that come before the one ahead of them was answered wait; past `WAITING_MAX` nothing more is read or parsed. A
body that nobody asks for is thrown away, up to a bound. What is no HTTP is answered once, and then the connection ends.
A head must come in its time, a body must get on, answers must be taken, and an idle connection may be closed.
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
from esker.fronts.http.unsent import MOVED_BYTES
from esker.fronts.http.wire.exchange import BUFFER_MAX, Exchange, refusal
from esker.fronts.http.wire.heads import HEAD_BYTES_MAX, HEADERS_MAX
from esker.fronts.http.wire.marking import NAME, Marking
from esker.fronts.http.wire.tunnel import Tunnel

if TYPE_CHECKING:
    from esker.fronts.http.server import HttpServer

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WAITING_MAX: Final = 16
DISCARD_BYTES_MAX: Final = 256 * 1024 * 1024
CHUNKS_MIN: Final = 4096  # of a body, from which on they must have …
CHUNK_BYTES_MIN: Final = 16  # … this size on average: each costs as much as some hundred bytes
_SLICE_BYTES: Final = 4 * 1024  # that are parsed before it is looked at how many requests they brought
_BODY_SLICE_BYTES: Final = 64 * 1024  # the same, within a body
PARTING_S: Final = 2.0  # to take the last answer, for a client that is still sending


class Connection(asyncio.Protocol):
    __slots__ = (
        "_answering", "_body_bytes", "_broken", "_chunks", "_deadline", "_discarded", "_got_on", "_head_bytes",
        "_in_head", "_offer", "_opening", "_parser", "_reading", "_room", "_since", "_stalls_since", "_stopped",
        "_tunnel", "_unparsed", "_unsent", "_waiting", "_window_bytes", "_window_ends", "closing", "full", "left",
        "loop", "lost", "moved_at", "peer", "server", "transport",
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
        self._unparsed = b""  # what came behind more requests than may wait
        self._head_bytes = 0  # of a head, or of trailers, since anything else came
        self._got_on = False  # … with what is being parsed
        self._body_bytes = self._chunks = 0  # of the body that arrives
        self._window_bytes = 0  # of those, when its time was set
        self._window_ends = 0.0  # by then more of it must have come; 0: it was not looked at yet
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
        self.moved_at = 0.0  # when it had taken a good part of what it was sent
        self._deadline = 0.0  # of a head, of an idle connection, or a parting; 0: none
        self._since = 0.0  # when that was set
        self._expect(server.head_s)

    # -- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods only
        self.peer = Peer(address_of(transport.get_extra_info("peername")))
        self.server.connections[self] = None

    def connection_lost(self, error: Exception | None) -> None:
        self.server.ended(self)
        self.server.unsent.settle(self)
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
        self.moved_at = self.loop.time()
        self.server.unsent.owe(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self.full = False
        self.server.unsent.settle(self)
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
                self._hand_on(b"", data)
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
        """All of it, or up to where more requests wait than may: the rest is kept, and nothing more is read."""
        if len(data) <= _SLICE_BYTES:
            self._feed(data)
            return
        at = 0
        while at < len(data) and self._broken is None and self._tunnel is None:
            if self._stopped:
                self._unparsed = data[at:]
                return
            in_body = self._reading is not None and not self._in_head
            end = at + (_BODY_SLICE_BYTES if in_body else _SLICE_BYTES)
            self._feed(data[at:end], data, end)
            at = end

    def _go_on(self) -> None:
        """Parses what was kept, and reads on if that is not too much again."""
        data, self._unparsed = self._unparsed, b""
        if self._stopped or self._broken is not None or self.transport.is_closing():
            self._unparsed = data
            return
        self._parse(data)
        answering = self._answering
        if answering is not None and not answering.begun and answering.task is None:
            self._answer(answering)
        self._read_on()

    def _read_on(self) -> None:
        if not self._stopped and not self.transport.is_closing() and self._tunnel is None:
            self.transport.resume_reading()

    def _feed(self, data: bytes, whole: bytes = b"", end: int = 0) -> None:
        """One slice. What comes behind `end` in `whole` belongs to whom this hands the connection on."""
        self._got_on = False
        alone = self._reading is None  # a head that begins does so with the first byte, unless another request ended
        rest: bytes | memoryview = data
        try:
            while rest:
                try:
                    self._parser.feed_data(rest)
                    break
                except HttpParserUpgrade as offer:
                    rest = self._decline(memoryview(rest)[offer.args[0] :], whole[end:])
        except HttpParserError as error:
            found = error.__context__  # what a callback of ours raised, if one did
            unread = HttpError(400, "invalid_request", f"this is not HTTP: {error}")
            self._break(found if isinstance(found, HttpError) else unread)
            return
        if self._got_on:
            # How much belongs to a head that begins behind something else is not known: less than a slice.
            self._head_bytes = len(data) if self._in_head and alone and self._answering is None else 0
        elif self._reading is not None:  # a head goes on, or trailers, or the extension of a chunk
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._break(_head_too_large())

    # Called by the parser, in this order.

    def on_message_begin(self) -> None:
        self._reading = Exchange(self)
        self._got_on = self._in_head = True
        self._expect(self.server.head_s)

    def on_url(self, url: bytes) -> None:
        assert self._reading is not None
        self._reading.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # or it is a trailer: nobody here asks for one
            assert self._reading is not None
            headers = self._reading.headers
            if len(headers) >= HEADERS_MAX:
                raise HttpError(431, "headers_too_large", f"a request has at most {HEADERS_MAX} headers")
            headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        exchange, parser = self._reading, self._parser
        assert exchange is not None
        self._in_head, self._deadline = False, 0.0
        self._body_bytes = self._chunks = 0
        self._window_ends = 0.0
        exchange.headed(parser.get_method(), parser.get_http_version(), parser.should_keep_alive())
        if self._head_bytes > HEAD_BYTES_MAX // 2 and exchange.head_bytes() > HEAD_BYTES_MAX:
            raise _head_too_large()
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
        self._body_bytes += len(chunk)
        self._chunks += 1
        if self._chunks > CHUNKS_MIN and exchange.chunked and self._body_bytes < CHUNK_BYTES_MIN * self._chunks:
            raise HttpError(400, "invalid_request", f"chunks have at least {CHUNK_BYTES_MIN} bytes on average")
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
                    self._expect(self.server.head_s)
                self._window_ends = 0.0  # a body has its time again
                if self._unparsed:
                    self.loop.call_soon(self._go_on)
                else:
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
        elif (self.closing or self.left) and not self._unparsed:
            self.transport.close()

    def _break(self, error: HttpError) -> None:
        """What came is no HTTP. It is said behind the answers that are owed."""
        self._broken = error
        self._unparsed = b""
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
        self._unparsed = b""
        self.flow()  # what it still sends is read, and thrown away
        self._expect(PARTING_S)
        self.transport.write_eof()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > DISCARD_BYTES_MAX:
            self.transport.abort()

    # -- other protocols

    def _decline(self, rest: memoryview, behind: bytes) -> bytes | memoryview:
        """A request offers to go on in another protocol. WebSocket is taken up by others. To whatever else there is we
        need not agree: the request is read again as if it had not offered it, because its body was not looked for.

        Returns what is left to parse."""
        exchange, self._offer = self._offer, None
        assert exchange is not None
        if exchange.method == "CONNECT":
            self._break(HttpError(400, "invalid_request", "this is no proxy"))
            return b""
        offers = b"".join(value.lower() for name, value in exchange.headers if name == b"upgrade")
        alone = self._answering is None and not self._waiting and not self.full  # whose answers it has taken
        socket = exchange.method == "GET" and offers == b"websocket" and alone
        line = b"%b %b HTTP/%b\r\n" % (exchange.method.encode(), exchange.target, b"1.0" if exchange.old else b"1.1")
        headers = b"".join(b"%b: %b\r\n" % each for each in exchange.headers if socket or each[0] != b"upgrade")
        if socket:
            self._reading = None
            self._hand_on(line + headers, bytes(rest) + behind)
            return b""
        self._parser = HttpRequestParser(self)
        self._parser.feed_data(line + headers + b"\r\n")
        return rest

    def _hand_on(self, head: bytes, behind: bytes) -> None:
        """From here on others speak with this client. `head` is that of its WebSocket, without its end, or nothing."""
        self.server.ended(self)
        if not self.server.admits_tunnel():
            self.server.connections[self] = None
            self._refuse(too_many())
            return
        self.transport.pause_reading()  # at once: more may be read before the task begins
        tunnel = Tunnel(self.server.others, self.transport, self.peer)
        if head:
            opening, marking = b"%b%b: %b\r\n\r\n%b" % (head, NAME, tunnel.mark, behind), None
        else:
            opening, marking = behind, Marking(tunnel.mark, len(PREFACE))
        self._tunnel = self.loop.create_task(tunnel.dig(opening, marking))

    # -- the end

    @property
    def idle(self) -> bool:
        """No request is under way: at most, a part of its head has come."""
        return self._answering is None and not self._waiting and (self._reading is None or self._in_head)

    @property
    def idle_since(self) -> float:
        """Of one that is idle; known to a second. Whoever takes what it was answered is not."""
        takes = self.transport.get_write_buffer_size() != self._unsent
        return self._since if self._deadline and not takes else self.loop.time()

    def _expect(self, seconds: float, now: float | None = None) -> None:
        """Something must have happened by then."""
        self._since = self.loop.time() if now is None else now
        self._deadline = self._since + seconds

    def look(self, now: float) -> None:
        """Ends it when it takes too long to send a request, to go, or to take anything of what it was answered."""
        unsent = self.transport.get_write_buffer_size()
        takes = unsent != self._unsent
        if takes or not unsent:
            if self._unsent - unsent >= MOVED_BYTES or not unsent:
                self.moved_at = now
            self._unsent, self._stalls_since = unsent, now
            if self.full:
                self.server.unsent.owe(self, unsent)
        rests = self.idle and self._reading is None
        if rests and (not self._deadline or (takes and self._broken is None)):
            self._expect(self.server.idle_s, now)  # unless a request comes, which sets another time
        late = self._deadline and now > self._deadline and not self._stopped
        if late or now - self._stalls_since > self.server.stall_s or self._body_stalls(now):
            self.transport.abort()
            return
        if self._reading is not None:
            self._reading.nudge()

    def _body_stalls(self, now: float) -> bool:
        """In each window a body must end, or bring a little. While we do not read it has all time."""
        if self._reading is None or self._in_head or self._stopped:
            return False
        if not self._window_ends or self._body_bytes - self._window_bytes >= self.server.body_bytes_min:
            self._window_ends, self._window_bytes = now + self.server.body_s, self._body_bytes
        return now > self._window_ends

    def cut(self) -> None:
        self.transport.abort()

    def finish(self) -> None:
        """The node stops: what is under way is the last."""
        self.closing = True
        if self._answering is None:
            self.transport.close()


def too_many() -> HttpError:
    return HttpError(503, "too_many_connections", "this node has as many connections as it can; try again in a moment")


def _head_too_large() -> HttpError:
    return HttpError(431, "headers_too_large", f"the head of a request has at most {HEAD_BYTES_MAX} bytes")

"""One request of an HTTP/1.1 connection and its answer, as the front sees them: an ASGI scope, `receive` and `send`.

What has arrived of a body waits here until it is asked for; whoever asks gets all of it at once. Nothing is read from
the socket while more than `BUFFER_MAX` waits. An answer's head leaves together with the first part of its body, so most
answers are one write.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from esker.fronts.http.calls import ClientLeft, Message
from esker.fronts.http.errors import Header, HttpError
from esker.fronts.http.peers import PEER
from esker.fronts.http.wire.heads import Head
from esker.fronts.http.wire.target import split_target

if TYPE_CHECKING:
    from esker.fronts.http.wire.connection import Connection

BUFFER_MAX: Final = 1024 * 1024
WAKE_BYTES: Final = 256 * 1024  # of a body that is still coming wake whoever waits for it: fewer steps, less room
_JOIN_MAX: Final = 64 * 1024  # a head and a body up to this are one piece: copying is quicker than another system call
_CHUNK_COST: Final = 64  # of its object: many small ones take more room than what they hold
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_BODILESS: Final = frozenset({204, 304})
_STATUS: Final = {status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus}
_DISCONNECT: Final[Message] = {"type": "http.disconnect"}


class Exchange:
    __slots__ = (
        "_arrived", "_asks_first", "_bodiless", "_chunked", "_chunks", "_connection", "_due", "_head", "_known",
        "_receiver", "begun", "buffered", "by_name", "chunked", "complete", "finished", "headers", "keep_alive",
        "method", "old", "target", "task",
    )  # fmt: skip

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: Head | None = None
        self.method = ""
        self.target = b""
        self.headers: list[Header] = []
        self.keep_alive = True
        self.old = False  # HTTP/1.0
        self.chunked = False  # its body is
        self._asks_first = False  # whether to send its body, and has not been told
        self.begun = False  # somebody answers it
        self.task: asyncio.Task[None] | None = None  # … who does, if it takes a while
        self.by_name: Mapping[bytes, bytes] | None = None
        self._chunks: list[bytes] = []
        self.buffered = 0
        self.complete = False  # the request has arrived, to its end
        self._due = False  # what has arrived has waited long enough for more
        self._arrived = False  # … and was received
        self._receiver: asyncio.Future[None] | None = None
        self._head: bytes | None = None  # of an answer that has begun, and that is not written yet
        self._chunked = self._bodiless = False
        self.finished = False  # the answer has been written, to its end

    @classmethod
    def known(cls, connection: Connection, head: Head, body: bytes) -> Exchange:
        """A request that is whole, and whose head needs no parsing."""
        exchange = cls(connection)
        exchange._known = head
        exchange.method, exchange.target, exchange.headers, exchange.by_name = head[:4]
        exchange._chunks.append(body)
        exchange.complete = True
        return exchange

    # -- the request

    def headed(self, method: bytes, version: str, keep_alive: bool) -> None:
        """Its head is complete. Raises what is wrong with it, of what the parser lets pass."""
        if version not in ("1.1", "1.0"):
            raise HttpError(505, "version_not_supported", f"this is HTTP/{version}; 1.1 and 2 are spoken here")
        self.method = method.decode()
        self.old, self.keep_alive = version == "1.0", keep_alive
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"expect":
                self._asks_first = not self.old and value.lower() == b"100-continue"
            elif name == b"transfer-encoding":
                if value.lower() != b"chunked":
                    raise HttpError(400, "invalid_request", "the only transfer coding that is understood is chunked")
                self.chunked = True
        if hosts != 1 and not (self.old and not hosts):
            raise HttpError(400, "invalid_request", f"a request names its host once; this one names {hosts}")

    def head_bytes(self) -> int:
        """Of its lines, as they would be written with no more spaces than needed."""
        line = len(self.method) + len(self.target) + len(b"  HTTP/1.1\r\n\r\n")
        return line + sum(len(name) + len(value) + len(b": \r\n") for name, value in self.headers)

    def scope(self) -> Mapping[str, object]:
        if self._known is not None:
            return self._known.scope
        path, query = split_target(self.target)
        return {
            "type": "http",
            "http_version": "1.0" if self.old else "1.1",
            "method": self.method,
            "path": path,
            "query_string": query,
            "headers": self.headers,
            PEER: self._connection.peer,
        }

    def feed(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self.buffered += len(chunk) + _CHUNK_COST
        if self.buffered >= WAKE_BYTES:
            self.wake()

    def wake(self) -> None:
        """There may be something to receive."""
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_result(None)

    def nudge(self) -> None:
        """What has arrived, if anything, is given out even if it is little: who waits for it sees that it gets on."""
        if self.buffered:
            self._due = True
            self.wake()

    async def receive(self) -> Message:
        while not self._receivable():
            if self._asks_first and not self.buffered:
                self._asks_first = False
                self._connection.transport.write(_CONTINUE)
            self._receiver = self._connection.loop.create_future()
            try:
                await self._receiver
            finally:
                self._receiver = None
        if self._arrived or not self._comes_on():
            return _DISCONNECT
        chunks = self._chunks
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self._chunks, self.buffered, self._due = [], 0, False
        self._connection.flow()
        self._arrived = self.complete
        return {"type": "http.request", "body": body, "more_body": not self.complete}

    def take(self) -> bytes:
        """The body of a request that has arrived to its end: what `receive` would give."""
        body = b"".join(self._chunks)
        self._chunks, self.buffered = [], 0
        self._arrived = True
        return body

    def _receivable(self) -> bool:
        if self._arrived:
            return self.finished or self._connection.left
        return self.complete or self._due or self.buffered >= WAKE_BYTES or not self._comes_on()

    def _comes_on(self) -> bool:
        """Its body is here, or may still come. One that is here counts, even if its client has gone."""
        return self.complete or not (self.finished or self._connection.left)

    def drop(self) -> None:
        """Nobody will ask for the rest of its body."""
        self._chunks, self.buffered = [], 0

    # -- the answer

    async def send(self, message: Message) -> None:
        """Returns when there is room for more. Raises `ClientLeft` when nobody is there to take it."""
        connection = self._connection
        if connection.lost:
            raise ClientLeft("the client hung up")
        if message["type"] == "http.response.start":
            status, headers = message["status"], message["headers"]
            assert isinstance(status, int)
            assert isinstance(headers, list)
            self._begin(status, headers)
            return
        body = message.get("body", b"")
        assert isinstance(body, bytes)
        more = bool(message.get("more_body"))
        self._write(body, more)
        if not more:
            self.finished = True
            connection.answered(self)
        elif connection.full:
            await connection.room()

    def answer(self, status: int, media: bytes, headers: tuple[Header, ...], body: bytes) -> None:
        connection = self._connection
        if connection.lost:
            return
        if self._known is not None and not (headers or connection.closing or len(body) > _JOIN_MAX):
            text = b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b"
            shown = b"" if self.method == "HEAD" else body
            connection.transport.write(text % (_STATUS[status], media, len(body), _dated(int(time.time())), shown))
        else:
            self._begin(status, ((b"content-type", media), (b"content-length", b"%d" % len(body)), *headers))
            self._write(body, more=False)
        self.finished = True
        connection.answered(self)

    def abort(self) -> None:
        self._connection.transport.abort()

    def _begin(self, status: int, headers: Iterable[Header]) -> None:
        assert self._head is None, "an answer begins once"
        parts = [_STATUS[status]]
        measured = False
        for name, value in headers:
            parts.append(b"%b: %b\r\n" % (name, value))
            measured = measured or name == b"content-length"
        self._bodiless = self.method == "HEAD" or status in _BODILESS
        if not measured and not self._bodiless:
            self._chunked = not self.old
            self.keep_alive = self.keep_alive and not self.old  # its end is that of the connection
            if self._chunked:
                parts.append(b"transfer-encoding: chunked\r\n")
        if self._asks_first and not self.complete:
            self.keep_alive = False  # it may send its body, or not: nobody knows
        self._asks_first = False  # this is what it is told
        if not self.keep_alive or self._connection.closing:
            self.keep_alive = False
            parts.append(b"connection: close\r\n")
        elif self.old:
            parts.append(b"connection: keep-alive\r\n")
        parts.append(_dated(int(time.time())))
        self._head = b"".join(parts)
        if not measured:  # more of it may come at any time, or never
            self._connection.transport.write(self._head)
            self._head = b""

    def _write(self, body: bytes, more: bool) -> None:
        head, self._head = self._head, b""
        assert head is not None, "an answer begins with its head"
        transport = self._connection.transport
        end = b""
        if self._bodiless:
            body = b""
        elif self._chunked:
            if body:
                head, end = b"%b%x\r\n" % (head, len(body)), b"\r\n"
            if not more:
                end += b"0\r\n\r\n"
        if len(body) > _JOIN_MAX:
            if head:
                transport.write(head)
            transport.write(body)  # as it is: others may have been sent the same
            if end:
                transport.write(end)
        elif body or head or end:
            transport.write(head + body + end if end else head + body)


def refusal(error: HttpError) -> bytes:
    """The whole answer to what is no request, after which nothing more is understood."""
    body = error.body()
    head = b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n"
    return head % (_STATUS[error.status], len(body)) + _dated(int(time.time())) + body


@lru_cache(1)
def _dated(second: int) -> bytes:
    """The last line of a head: the same for all answers of a second."""
    return b"date: %b\r\n\r\n" % formatdate(second, usegmt=True).encode()

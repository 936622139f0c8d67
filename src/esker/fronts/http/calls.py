"""One HTTP request as the endpoints see it, and the answer they give.

A call is thin: it looks at a header, the query or the body only when asked. Endpoints return an `Answer` and never
touch the socket; whoever called them waits for the gate, adds the `performance` block and sends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec

from esker.errors import EskerError
from esker.fronts.access import ANYONE, Key, Scope
from esker.fronts.http.arrivals import busy
from esker.fronts.http.errors import Header, HttpError, forbidden, invalid
from esker.fronts.http.peers import PEER, Peer

if TYPE_CHECKING:
    from esker.fronts.http.front import Front
    from esker.fronts.http.logins import Login

Message = MutableMapping[str, object]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

QUERY_BYTES_MAX: Final = 64 * 1024
NUMBER_DIGITS_MAX: Final = 20  # of a number in a query: what 64 bits can hold
_DRAIN_S_MAX = 30.0  # how long the rest of a body that is too large is thrown away before the answer
_TRUE: Final = frozenset({"true", "1"})
_FALSE: Final = frozenset({"false", "0"})

T = TypeVar("T", covariant=True)


class Decoder(Protocol[T]):
    def decode(self, buf: bytes, /) -> T: ...


class ClientLeft(EskerError):
    """The client hung up; nobody is there to answer."""


class Whole(Protocol):
    """A request that has arrived to its end, of a client who can be answered at any time."""

    by_name: Mapping[bytes, bytes] | None  # its headers, if anybody has sorted them already

    def scope(self) -> Mapping[str, object]: ...

    def take(self) -> bytes:
        """Its body; `receive` has nothing more to give then."""

    async def receive(self) -> Message: ...

    async def send(self, message: Message) -> None: ...

    def answer(self, status: int, media: bytes, headers: tuple[Header, ...], body: bytes) -> None:
        """Sends all of an answer. One whose client has left is thrown away."""

    def abort(self) -> None:
        """Ends the connection without one."""


class Answer(msgspec.Struct, frozen=True):
    """A success. `body` is a JSON object, to which the `performance` block is added, unless `media` says otherwise.

    `topic` is the one whose durability class the answer had to meet: if it is fsync, the wait for the disk is told.
    """

    body: bytes
    status: int = 200
    topic: bytes | None = None
    quiet: bool = False  # a wait for the disk of 0 is left out
    lasting: bool = False  # it tells of nothing that has yet to reach the disk, so it waits for no gate
    scanned: int | None = None
    files_read: int = 0  # of the archive
    headers: tuple[Header, ...] = ()
    media: bytes | None = None  # content type of a body that is sent as it is


class Call:
    __slots__ = (
        "_headers", "_query", "allowed_origin", "began_ns", "entire", "front", "key", "login", "params", "receive",
        "scope", "send", "started", "whole",
    )  # fmt: skip

    def __init__(
        self,
        front: Front,
        scope: Mapping[str, object],
        receive: Receive,
        send: Send,
        by_name: Mapping[bytes, bytes] | None = None,
    ) -> None:
        self.front = front
        self.scope = scope
        self.receive = receive
        self.send = send
        self.key: Key = ANYONE
        self.login: Login | None = None  # that has to wait
        self.allowed_origin: bytes | None = None  # of a page that may read the answer
        self.params: Mapping[str, str] = {}
        self.entire: bytes | None = None  # the body, if the request came with it
        self.whole = False  # the request has been received to its end
        self.started = False  # the response has begun: an error can no longer be told with a status
        self.began_ns = perf_counter_ns()
        self._headers = by_name
        self._query: dict[str, str] | None = None

    # -- what was asked

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        return str(self.scope["path"])

    @property
    def peer(self) -> Peer:
        """Whom it came from."""
        found = self.scope.get(PEER)
        return found if isinstance(found, Peer) else Peer()

    def header(self, name: bytes) -> bytes | None:
        """The first header of this (lower-case) name."""
        if self._headers is None:
            headers = self.scope["headers"]
            assert isinstance(headers, list)
            self._headers = dict(reversed(headers))
        return self._headers.get(name)

    @property
    def query(self) -> Mapping[str, str]:
        """Form-decoded; the first of duplicates wins."""
        if self._query is None:
            text = self.scope["query_string"]
            assert isinstance(text, bytes)
            if len(text) > QUERY_BYTES_MAX:
                raise invalid(f"the query has {len(text)} bytes; at most {QUERY_BYTES_MAX}")
            self._query = {}
            if text:
                for name, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True, errors="surrogateescape"):
                    self._query.setdefault(name, value)
        return self._query

    def switch(self, name: str, default: bool) -> bool:
        """A boolean of the query: true, 1, false or 0; anything else is the default."""
        value = self.query.get(name, "") if self.scope["query_string"] else ""
        if value in _TRUE:
            return True
        return False if value in _FALSE else default

    def guard(self, name: str) -> bool:
        """A boolean of the query that keeps a call from doing harm: a value that is not understood is refused."""
        value = self.query.get(name)
        if value is None or value in _FALSE:
            return False
        if value in _TRUE:
            return True
        raise invalid(f"{name} is {value[:40]!r}; expected true, 1, false or 0")

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A number of the query, brought into its bounds."""
        text = self.query.get(name)
        if text is None or not text:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= NUMBER_DIGITS_MAX):
            raise invalid(f"{name} is {text[:40]!r}; expected a whole number, {least} to {most}")
        return min(max(int(text), least), most)

    # -- what this key may do

    def need(self, scope: Scope) -> None:
        if not self.key.may(scope):
            wanted = " and ".join(part.name.lower() for part in Scope if part in scope and part.name)
            raise forbidden(f"this key may not {wanted}")

    def reach(self, name: bytes, in_body: bool = False) -> None:
        """Refuses names that this key's prefixes do not cover."""
        if not self.key.reaches(name):
            shown = name.decode("utf-8", "backslashreplace")
            raise forbidden(f"this key does not reach {shown!r}", name if in_body else None)

    # -- the body

    async def body(self) -> bytes:
        """The whole body. Raises 413 before anything of it is parsed."""
        most = self.front.options.max_body_bytes
        if self.entire is not None:
            if len(self.entire) > most:
                raise _too_large(most)
            return self.entire
        told = self.header(b"content-length")
        if told is not None and told.isdigit() and int(told) > most:
            await self._drain(0, most)
            raise _too_large(most)
        message = await self.receive()
        first = self._chunk(message)
        if not message.get("more_body"):
            if len(first) > most:
                raise _too_large(most)
            return first
        chunks, size = [first], len(first)
        with self.front.arrivals.body() as arriving:
            fits = arriving.add(size)
            while fits and message.get("more_body"):
                message = await self.receive()
                chunk = self._chunk(message)
                chunks.append(chunk)
                size += len(chunk)
                fits = size <= most and arriving.add(len(chunk))
            if fits:
                return b"".join(chunks)
            chunks.clear()
        if message.get("more_body"):
            await self._drain(size, most)
        raise _too_large(most) if size > most else busy()

    def _chunk(self, message: Message) -> bytes:
        if message["type"] == "http.disconnect":
            raise ClientLeft("the client left before its request was complete")
        chunk = message.get("body", b"")
        assert isinstance(chunk, bytes)
        self.whole = not message.get("more_body")
        return chunk

    async def drain(self) -> None:
        """Over HTTP/2, what a client still sends when its answer is there is cut off by granian, and some take that for
        a failure. So the rest is heard out before a refusal; our own HTTP/1.1 does so behind its answer."""
        if self.scope.get("http_version") == "2" and self.scope["type"] == "http" and not self.whole:
            await self._drain(0, self.front.options.max_body_bytes)

    async def _drain(self, size: int, most: int) -> None:
        """Throws the rest of a body away: many clients do not look for an answer before they have sent everything.

        One that asked whether to send it at all (`Expect: 100-continue`) is told no at once.
        """
        if not size and self.header(b"expect") is not None:
            return
        room = 4 * most + (64 << 20)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S_MAX):
                while size < room:
                    message = await self.receive()
                    size += len(self._chunk(message))
                    if not message.get("more_body"):
                        break

    async def json(self, decoder: Decoder[T], empty: bytes | None = None) -> T:
        """The body, decoded. `empty` stands for a body that is not there, where one may be missing."""
        body = await self.body()
        if not body:
            if empty is None:
                self._check_media(if_told=True)
                raise invalid("the body is empty; expected a JSON object")
            body = empty
        else:
            self._check_media()
        return decoded(decoder, body)

    def _check_media(self, if_told: bool = False) -> None:
        media = self.header(b"content-type")
        if (media is None and if_told) or (media or b"").lower().startswith(b"application/json"):
            return
        shown = "none" if media is None else repr(media.decode("latin-1"))
        raise HttpError(
            415, "unsupported_media_type", f"the content type is {shown}; expected application/json",
        )  # fmt: skip

    # -- waiting

    async def left(self) -> None:
        """Returns when the client has hung up. Only after the body was read."""
        while (await self.receive())["type"] != "http.disconnect":
            continue


def _too_large(most: int) -> HttpError:
    return HttpError(413, "payload_too_large", f"the body is too large: at most {most} bytes")


def decoded(decoder: Decoder[T], body: bytes) -> T:
    """Raises 400 with words that name the field."""
    try:
        if not body.isascii():
            body.decode()  # what is passed on unparsed must be text as well
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from error
    except msgspec.DecodeError as error:
        raise invalid(f"the body is not JSON: {error}") from error
    except UnicodeDecodeError as error:
        raise invalid(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise invalid("the body is nested too deeply") from error

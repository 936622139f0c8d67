"""Connections we push to: how many there may be, how fast they must read, how they end.

Back-pressure: a stream asks for what is next only after the transport took what it sent last, so it holds at most one
unsent message (the server's transport takes a few, the kernel some more, and then `send` waits). A reader that takes
nothing for `STALL_S` is cut; its session stays, so it can come back and go on where it was. Memory for slow readers is
therefore bounded by connections times one message.

An end is always said: when the node stops, streams send an `error` and finish by themselves; those that have not after
`GOOD_BYE_S` are cut.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

from esker.errors import EskerError
from esker.fronts.http.calls import Call, Message
from esker.fronts.http.departures import passed
from esker.fronts.http.errors import HttpError, throttled
from esker.fronts.http.streams.frames import HEADERS, RETRY, json_frame
from esker.fronts.http.streams.pages import Pages
from esker.fronts.http.streams.sessions import Sessions

if TYPE_CHECKING:
    from esker.fronts.http.front import Front

STALL_S: Final = 30.0  # a reader that takes nothing for this long is cut
_LOOK_S: Final = 1.0  # how often stalled readers are looked for
GOOD_BYE_S: Final = 2.0
SHUTTING_DOWN: Final = "server_shutting_down"
GOOD_BYE: Final = "the server is shutting down; connect again in a moment"


class ReaderStalled(EskerError):
    """The client took nothing for too long."""


class Outlet:
    """One connection. Whoever runs it waits with `wait`, is woken by `wake`, and sends with `send`."""

    __slots__ = (
        "__weakref__", "_beat", "_loop", "_task", "_timer", "_waiting", "_woken", "beat_due", "call", "left", "sent_at",
        "since", "stalled", "streams",
    )  # fmt: skip

    def __init__(self, streams: Streams, call: Call) -> None:
        self.streams = streams
        self.call = call
        self.left = False  # the client has hung up
        self.stalled = False
        self.since = 0.0  # when the send under way began; 0: none is
        self.beat_due = False
        self._loop = asyncio.get_running_loop()
        self.sent_at = self._loop.time()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._woken = False
        self._waiting: asyncio.Future[None] | None = None
        self._beat = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        self._woken = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self) -> None:
        """Returns when `wake` was called since it returned last."""
        if not self._woken:
            self._waiting = self._loop.create_future()
            await self._waiting
            self._waiting = None
        self._woken = False

    async def send(self, message: Message) -> None:
        """Raises `ReaderStalled` when the client did not take it in time."""
        self.since = self._loop.time()
        try:
            await self.call.send(message)
        except asyncio.CancelledError:
            if self.stalled:
                raise ReaderStalled(f"the client took nothing for {self.streams.stall_s:g} s") from None
            raise
        finally:
            self.sent_at = self._loop.time()
            self.since = 0.0

    async def begin(self) -> None:
        """The head of an event stream."""
        self.call.started = True
        await self.send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await self.push(RETRY)

    async def push(self, body: bytes) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes = b"") -> None:
        """The last of an event stream."""
        if not self.left:
            await self.send({"type": "http.response.body", "body": body, "more_body": False})

    async def depart(self) -> None:
        """Returns when everything decided until now may be talked about. Raises `HttpError` when it was lost."""
        opening = self.streams.front.departures.next()
        if opening is not None:
            await passed(opening)

    async def converse(self, deliver: Callable[[], Awaitable[None]]) -> None:
        """Runs an event stream until `deliver` returns; what we cannot go on from is said before the end."""
        try:
            async with self._listening():
                await deliver()
        except EskerError as error:
            if isinstance(error, ReaderStalled):
                raise
            await self.end(json_frame(b"error", {"code": "internal", "message": str(error)}))

    @contextlib.asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        """Meanwhile a client that hangs up sets `left` and wakes."""
        task = asyncio.create_task(self._listen())
        try:
            yield
        finally:
            task.cancel()

    async def _listen(self) -> None:
        await self.call.left()
        self.left = True
        self.wake()

    # -- heartbeats

    def beat(self, every_ms: int) -> None:
        """From now on `beat_due` is set, and `wake` called, whenever nothing was sent for so long."""
        self._beat = every_ms / 1000
        self._timer = self._loop.call_later(self._beat, self._look)

    def _look(self) -> None:
        left = self.sent_at + self._beat - self._loop.time()
        if left <= 0.001 and not self.since:
            self.beat_due = True
            self.wake()
            left = self._beat
        self._timer = self._loop.call_later(max(left, 0.01), self._look)

    def cut_if_stalled(self, now: float, stall_s: float) -> None:
        if self.since and now - self.since > stall_s and not self.stalled:
            self.stalled = True
            self._task.cancel()

    def abandon(self) -> None:
        """The node ends, and this one has not."""
        self._task.cancel()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Streams:
    """All push connections of a front, and the watch sessions they resume."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.broker = front.broker
        self.pages = Pages(front.broker)
        self.sessions = Sessions(front)
        self.columns_open = 0  # streams of columns (columns.py), which are larger than others
        self.stall_s = STALL_S
        self._loop = asyncio.get_running_loop()
        self._outlets: set[Outlet] = set()
        self._empty = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def stopping(self) -> bool:
        return self.front.stopping.is_set()

    @contextlib.contextmanager
    def admitted(self, call: Call) -> Iterator[Outlet]:
        """A place among the connections. Raises 429 when there is none, 503 when the node is about to stop."""
        options, counts, key = self.front.options, self.front.streams_open, call.key
        if self.stopping:
            raise HttpError(503, "shutting_down", GOOD_BYE)
        if options.max_sse_connections and counts.total() >= options.max_sse_connections:
            raise throttled(f"{options.max_sse_connections} streams are open already; that is the most")
        per_key = options.max_sse_connections_per_key
        if per_key and key.digest and counts[key] >= per_key:
            raise throttled(f"this key has {per_key} streams open already; that is the most")
        outlet = Outlet(self, call)
        counts[key] += 1
        self._outlets.add(outlet)
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_S, self._look)
        try:
            yield outlet
        finally:
            outlet.close()
            self._outlets.discard(outlet)
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
            if not self._outlets:
                self._empty.set()

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for outlet in self._outlets:
            outlet.cut_if_stalled(now, self.stall_s)
        if self._outlets:
            self._timer = self._loop.call_later(_LOOK_S, self._look)

    async def close(self) -> None:
        """The node stops: every stream says so and ends; one that cannot, because nobody reads it, is cut."""
        now = self._loop.time()
        for outlet in list(self._outlets):
            outlet.wake()
            outlet.cut_if_stalled(now, GOOD_BYE_S)
        if self._outlets:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), GOOD_BYE_S)
        for outlet in list(self._outlets):
            outlet.abandon()
        if self._timer is not None:
            self._timer.cancel()

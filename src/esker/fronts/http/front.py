"""The HTTP front as one ASGI application: finds the route, the key and the scope, runs the endpoint, sends.

    request ─► hot path? ─► endpoint ─► gate ─► performance ─► response
                  └ no ─► starlette's router ─┘

The routes that carry the traffic (write, diff, claim, ack …) are found by the shape of their path alone; everything
else goes through starlette's router. Both lead to the same `Resource`, made from the one table of routes, so a path has
one set of methods, one place for scopes and one shape of errors, whatever way it was found.

A request on a hot path that has arrived to its end needs no task (`at_once`): its endpoint hardly ever waits, and when
the gate opens it calls back.

A reply leaves only after the gate that stood when it was decided, refusals included (departures.py); but for a lease of
jobs that are on disk (`Answer.lasting`), which tells of nothing that could be lost.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from time import perf_counter_ns

import structlog
from starlette.routing import Route as PathRoute
from starlette.routing import Router, WebSocketRoute

from esker.engine.config import Durability
from esker.errors import EskerError
from esker.fronts.access import Key, KeyRing
from esker.fronts.http.arrivals import Arrivals
from esker.fronts.http.calls import Answer, Call, ClientLeft, Message, Receive, Send, Whole
from esker.fronts.http.census import Census
from esker.fronts.http.consumers import Consumers
from esker.fronts.http.departures import Departures, lost, passed
from esker.fronts.http.doors import Doors, answer_preflight, cors_headers, is_preflight
from esker.fronts.http.eager import Begun
from esker.fronts.http.errors import HttpError, internal, throttled
from esker.fronts.http.fragments import Fragments
from esker.fronts.http.logins import LoginWaits
from esker.fronts.http.options import HttpOptions
from esker.fronts.http.resource import Resource, unknown_path
from esker.fronts.http.routes import Reach, Route
from esker.fronts.http.streams.outlets import Streams
from esker.fronts.http.turns import Turns
from esker.fronts.http.unsent import LARGE_BYTES, Unsent
from esker.node.interface import Broker

JSON_MEDIA = b"application/json"
_diagnostics = structlog.get_logger("esker.http")
_TOPIC_PATH = "/v0/topics/"


class Front:
    """Made on the loop that runs it. `streams_open` and `watch_sessions` are kept by the streams, and shown."""

    def __init__(self, broker: Broker, options: HttpOptions, keys: KeyRing, routes: Iterable[Route]) -> None:
        self.broker = broker
        self.options = options
        self.keys = keys
        self.doors = Doors(options.allowed_origins, options.allowed_hosts)
        self.departures = Departures(broker)
        self.census = Census(broker)
        self.consumers = Consumers(broker)
        self.fragments = Fragments()
        self.unsent = Unsent(options.max_unsent_bytes, asyncio.get_running_loop())
        self.turns = Turns(self.unsent, asyncio.get_running_loop())
        self.arrivals = Arrivals(options.max_arriving_bytes, asyncio.get_running_loop())
        self.connections_refused = self.accept_failures = 0  # since the start; counted by the server
        self.stopping = asyncio.Event()  # set when the node stops: streams say good-bye and end
        self.streams_open: Counter[Key] = Counter()  # SSE and WebSocket connections
        self.watch_sessions = 0
        self.in_flight: Counter[Key] = Counter()
        self._under_way = 0  # requests of anybody, streams too
        self._drained = asyncio.Event()  # it is stopping, and there was a moment without any
        self.started_at = time.time()
        self.streams = Streams(self)
        self.routes = tuple(routes)
        resources: dict[str, Resource] = {}
        for route in self.routes:
            resources.setdefault(route.path, Resource(route.path)).add(route)
        self._topic = resources.get("/v0/topics/{topic}")
        below = "/v0/topics/{topic}/"
        self._of_topic = {
            path.removeprefix(below): resource for path, resource in resources.items() if path.startswith(below)
        }
        paths = [PathRoute(path, _Mounted(self, resource)) for path, resource in resources.items()]
        sockets = [
            WebSocketRoute(path, _Mounted(self, resource))
            for path, resource in resources.items()
            if "WEBSOCKET" in resource.routes
        ]
        self._router = Router([*sockets, *paths], redirect_slashes=False, default=_Mounted(self, None))

    @property
    def uptime_ms(self) -> int:
        return int((time.time() - self.started_at) * 1000)

    async def __call__(self, scope: Mapping[str, object], receive: Receive, send: Send) -> None:
        found = self._hot(scope)
        if found is not None:
            await self.run(found[0], Call(self, scope, receive, send), found[1])
        else:
            await self._router(scope, receive, send)  # type: ignore[arg-type]  # starlette wants mutable mappings

    def _hot(self, scope: Mapping[str, object]) -> tuple[Resource, dict[str, str]] | None:
        path = scope["path"]
        if scope["type"] == "http" and isinstance(path, str) and path.startswith(_TOPIC_PATH):
            name, slash, rest = path[len(_TOPIC_PATH) :].partition("/")
            resource = self._topic if not slash else self._of_topic.get(rest)
            if resource is not None and name:
                return resource, {"topic": name}
        return None

    async def run(self, resource: Resource | None, call: Call, params: Mapping[str, str]) -> None:
        """Answers one request, whatever happens."""
        self._under_way += 1
        call.params = params
        await self._told(call, self._run(resource, call))

    async def _run(self, resource: Resource | None, call: Call) -> None:
        try:
            route = self._route(resource, call)
        except LoginWaits:
            assert call.login is not None
            await call.login.settle()
            route = self._route(resource, call)
        if route.stream is not None:
            await route.stream(call)
        else:
            assert route.endpoint is not None
            self._enter(call.key)
            await self._answer(call, route.endpoint(call))

    def at_once(self, request: Whole) -> Awaitable[None] | None:
        """Answers a request that has arrived to its end. Returns what is left to be done in a task, if anything.

        On a hot path that is next to nothing: most endpoints wait for nothing, and the gate calls `_leave`.
        """
        scope = request.scope()
        found = self._hot(scope)
        if found is None:
            return self(dict(scope), request.receive, request.send)  # a copy, as starlette writes to it
        call = Call(self, scope, request.receive, request.send, request.by_name)
        call.params = found[1]
        self._under_way += 1
        entered = False
        try:
            route = self._route(found[0], call)
            if route.stream is not None:
                return self._told(call, route.stream(call))
            assert route.endpoint is not None
            self._enter(call.key)
            entered = True
            call.entire = request.take()
            begun = Begun(route.endpoint(call))
        except LoginWaits:
            return self._told(call, self._run(found[0], call))
        except Exception as error:  # noqa: BLE001 each is told as what it is
            answer = refusal(self._explained(call, error))
        else:
            if not begun.ended:
                return self._told(call, self._answer(call, begun))
            answer = begun.result
        self._hold(answer)
        synced_since = perf_counter_ns() if answer.topic is not None and self._is_synced(answer.topic) else 0
        leave = partial(self._leave, request, call, answer, entered, synced_since)
        if answer.lasting or not self.departures.then(leave):
            self._leave(request, call, answer, entered, 0, None)
        return None

    def _leave(
        self, request: Whole, call: Call, answer: Answer, entered: bool, synced_since: int, error: BaseException | None
    ) -> None:
        """The gate of an answer that was made at once has opened. Whatever happens here concerns nobody else."""
        self._let_go(answer)
        try:
            if error is not None:
                answer = refusal(lost(error))
            media, body = _rendered(call, answer, perf_counter_ns() - synced_since if synced_since else 0)
            headers = answer.headers
            if call.allowed_origin is not None:
                headers += cors_headers(call.allowed_origin)
            request.answer(answer.status, media, headers, body)
        except Exception as bug:  # noqa: BLE001 ours: the connection ends, and it is shown to the operator
            self._explained(call, bug)
            request.abort()
        finally:
            if entered:
                self._exit(call.key)
            self._ended()

    async def _told(self, call: Call, work: Awaitable[None]) -> None:
        """Sees to it that whatever comes of it reaches the client."""
        try:
            await work
        except ClientLeft:
            return
        except Exception as error:  # noqa: BLE001 each is told as what it is
            await self._refuse(call, self._explained(call, error))
        finally:
            self._ended()

    def _explained(self, call: Call, error: Exception) -> HttpError:
        if isinstance(error, HttpError):
            return error
        if isinstance(error, EskerError):
            return internal(str(error))
        # Our bug: it ends this request and is shown to the operator.
        _diagnostics.error("request failed", method=call.scope.get("method"), path=call.path, exc_info=error)
        return internal(f"{type(error).__name__}: this is a bug of the server")

    def _route(self, resource: Resource | None, call: Call) -> Route:
        origin = call.header(b"origin")
        if origin is not None and call.allowed_origin is None and self.doors.allows(origin):
            call.allowed_origin = origin
            call.send = _with_cors(call.send, origin)
        if is_preflight(call):
            return _PREFLIGHT
        route = unknown_path(call) if resource is None else resource.find(call)
        if not self.keys.required:
            self.doors.check(call, harmless=route.public or route.probe)
        if self.stopping.is_set() and not route.probe:
            raise HttpError(503, "shutting_down", "the node is stopping; ask again in a moment")
        return route

    def _ended(self) -> None:
        """One request less is under way."""
        self._under_way -= 1
        if not self._under_way and self.stopping.is_set():
            self._drained.set()

    async def drained(self) -> None:
        """Once it is stopping: returns when no request is under way."""
        if self._under_way:
            await self._drained.wait()

    # -- large answers, from when they are made until they are written

    def _hold(self, answer: Answer) -> None:
        if len(answer.body) > LARGE_BYTES:
            self.unsent.hold(len(answer.body))

    def _let_go(self, answer: Answer) -> None:
        if len(answer.body) > LARGE_BYTES:
            self.unsent.let_go(len(answer.body))

    # -- how many requests a key has under way

    def _enter(self, key: Key) -> None:
        if self._limits(key):
            if self.in_flight[key] >= self.options.max_inflight_per_key:
                raise throttled("this key has too many requests under way")
            self.in_flight[key] += 1

    def _exit(self, key: Key) -> None:
        if self._limits(key):
            self.in_flight[key] -= 1
            if not self.in_flight[key]:
                del self.in_flight[key]

    def _limits(self, key: Key) -> bool:
        return self.keys.required and self.options.max_inflight_per_key > 0 and bool(key.digest)

    # -- answers

    async def _answer(self, call: Call, answering: Awaitable[Answer]) -> None:
        """Of a call that has entered."""
        try:
            answer = await answering
            opening = None if answer.lasting else self.departures.next()
            fsync_ns = 0
            self._hold(answer)
            try:
                if opening is not None:
                    waited_ns = perf_counter_ns()
                    synced = answer.topic is not None and self._is_synced(answer.topic)
                    await passed(opening)
                    fsync_ns = perf_counter_ns() - waited_ns if synced else 0
                media, body = _rendered(call, answer, fsync_ns)
            finally:
                self._let_go(answer)  # from here on it is counted as its client's
            await respond(call, answer.status, body, media, answer.headers)
        finally:
            self._exit(call.key)

    def _is_synced(self, topic: bytes) -> bool:
        config = self.broker.config_of(topic)
        return config is not None and config.durability == Durability.FSYNC

    async def _refuse(self, call: Call, error: HttpError) -> None:
        """What was decided before it was refused must be durable too: a refusal may tell of it."""
        if call.started:
            return  # its head is out already: all that is left is to end it
        try:
            await self.departures.leave()
            await call.drain()
        except HttpError as worse:
            error = worse
        except ClientLeft:
            return
        if call.scope["type"] == "websocket":
            await refuse_socket(call, error)
        else:
            await respond(call, error.status, error.body(), JSON_MEDIA, tuple(error.headers))


_PREFLIGHT = Route(
    method="OPTIONS", path="*", reach=Reach.NOTHING, says="Whether a page may make a request.", public=True,
    endpoint=answer_preflight,
)  # fmt: skip


def _with_cors(send: Send, origin: bytes) -> Send:
    """Lets the page of `origin` read the answer."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message["headers"]
            assert isinstance(headers, list)
            message = {**message, "headers": [*headers, *cors_headers(origin)]}
        await send(message)

    return sending


class _Mounted:
    """A resource where starlette's router can call it."""

    def __init__(self, front: Front, resource: Resource | None) -> None:
        self._front = front
        self._resource = resource

    async def __call__(self, scope: Mapping[str, object], receive: Receive, send: Send) -> None:
        params = scope.get("path_params", {})
        assert isinstance(params, dict)
        await self._front.run(self._resource, Call(self._front, scope, receive, send), params)


def refusal(error: HttpError) -> Answer:
    return Answer(error.body(), error.status, headers=tuple(error.headers), media=JSON_MEDIA)


def _rendered(call: Call, answer: Answer, fsync_ns: int) -> tuple[bytes, bytes]:
    """The content type and the body of an answer that leaves now."""
    if answer.media is not None:
        return answer.media, answer.body
    parts = b'{"server_total_ms":%.3f' % ((perf_counter_ns() - call.began_ns) / 1e6)
    if answer.topic is not None and (fsync_ns or not answer.quiet):
        parts += b',"fsync_ms":%.3f' % (fsync_ns / 1e6) if fsync_ns else b',"fsync_ms":0'
    if answer.scanned is not None:
        parts += b',"records_scanned":%d' % answer.scanned
    if answer.files_read:
        parts += b',"cold_segments_read":%d' % answer.files_read
    # A view, and one join: formatting would copy a large body twice.
    opened = memoryview(answer.body)[:-1]
    return JSON_MEDIA, b"".join((opened, b',"performance":' if len(opened) > 1 else b'"performance":', parts, b"}}"))


async def respond(
    call: Call, status: int, body: bytes, media: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    call.started = True
    start: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": [(b"content-type", media), (b"content-length", b"%d" % len(body)), *headers],
    }
    await call.send(start)
    await call.send({"type": "http.response.body", "body": b"" if call.method == "HEAD" else body})


async def refuse_socket(call: Call, error: HttpError) -> None:
    """A WebSocket that is not accepted is answered like any other request."""
    call.started = True
    body = error.body()
    await call.send(
        {
            "type": "websocket.http.response.start",
            "status": error.status,
            "headers": [(b"content-type", JSON_MEDIA), (b"content-length", b"%d" % len(body)), *error.headers],
        }
    )
    await call.send({"type": "websocket.http.response.body", "body": body})

"""What a route is. All routes stand in one table (`table.py`), which feeds routing, scopes, 405s and the documents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum, auto

import msgspec

from esker.fronts.access import Scope
from esker.fronts.http.calls import Answer, Call
from esker.fronts.http.queries import Parameter
from esker.fronts.http.schemas import Schema

Endpoint = Callable[[Call], Coroutine[object, object, Answer]]
Stream = Callable[[Call], Awaitable[None]]


class Reach(Enum):
    """What of the node a route touches, and so what a key with prefixes can do with it."""

    NOTHING = auto()  # what is the same for everyone
    NAMES = auto()  # the topics and routers it names: refused unless the key reaches all of them
    SEEN = auto()  # lists and sums: of what the key reaches
    OWNED = auto()  # what has a name or an id of its own, and belongs to a topic, a key, or the prefixes of a key


class HeaderTold(msgspec.Struct, frozen=True):
    name: str
    says: str
    schema: Schema
    always: bool = True


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is a template: `{topic}`, `{router}` and `{wid}` stand for one segment.

    A route has an `endpoint`, which is answered whole, or a `stream`, which sends by itself (`Call.send`) and may raise
    `HttpError` before it has begun. `WEBSOCKET` as method: the stream gets the socket's messages.
    """

    method: str
    path: str
    says: str
    reach: Reach
    needs: Scope = Scope.NONE
    endpoint: Endpoint | None = None
    stream: Stream | None = None
    public: bool = False  # needs no key
    probe: bool = False  # needs no key unless the options say so
    token_in_query: bool = False
    body: type | None = None
    body_optional: bool = False
    answer: type | None = None
    media: str = "application/json"
    other_media: tuple[str, ...] = ()  # of an answer, if a client asks for it
    upload: str = ""  # the media type of a body that is not JSON
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()  # that it looks at
    told: tuple[HeaderTold, ...] = ()  # headers of its answer
    makes: tuple[tuple[str, str], ...] = ()  # what it gives a name to: parameters of other paths, and where they are
    hands: tuple[tuple[str, Schema], ...] = ()  # operations that go on with its answer, and their bodies
    statuses: tuple[int, ...] = (200,)
    errors: tuple[int, ...] = (400,)

    @property
    def name(self) -> str:
        """For documents: what the endpoint is called."""
        run = self.endpoint or self.stream
        return getattr(run, "__name__", self.path)

    @property
    def section(self) -> str:
        """For documents: the module that its endpoint is in."""
        run = self.endpoint or self.stream
        return getattr(run, "__module__", "").rpartition(".")[2]

"""Watch sessions: what a client wants to follow, and how far it has come.

A session outlives its connection: a client that comes back within `SESSION_TTL_MS` goes on where it was. The place kept
here is the truth; the id a client sends along may only take it back (what was sent is not always received), never
forward. Nobody but the key that made a session may open it.

Sessions without a stream are collected when another is made or opened, so none needs a timer; open ones never are.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from esker.fronts.access import Key
from esker.fronts.http.errors import HttpError, throttled
from esker.fronts.http.streams.pages import View

if TYPE_CHECKING:
    from esker.fronts.http.front import Front

SESSION_TTL_MS: Final = 300_000
TOPICS_MAX: Final = 256  # of one session: each is looked at whenever one of them changed


class Session:
    __slots__ = ("cursors", "heartbeat_ms", "idle_ms", "key", "streams", "view", "wid")

    def __init__(self, wid: str, key: Key, cursors: dict[str, int], view: View, heartbeat_ms: int) -> None:
        self.wid = wid
        self.key = key
        self.cursors = cursors  # the last seq of each topic that was sent
        self.view = view
        self.heartbeat_ms = heartbeat_ms
        self.streams = 0  # open now
        self.idle_ms = 0  # since when none is

    def rewind(self, position: Mapping[str, int]) -> None:
        """Takes topics back to where the client says it is; never forward."""
        for topic, seq in position.items():
            if topic in self.cursors:
                self.cursors[topic] = min(self.cursors[topic], seq)


class Sessions:
    def __init__(self, front: Front) -> None:
        self._front = front
        self._sessions: dict[str, Session] = {}
        self._idle: OrderedDict[str, Session] = OrderedDict()  # without a stream, longest first

    def make(self, key: Key, cursors: dict[str, int], view: View, heartbeat_ms: int) -> Session:
        """Raises 429 when there are as many as may be."""
        self._collect()
        most = self._front.options.max_watch_sessions
        if most and len(self._sessions) >= most:
            raise throttled(f"there are {most} watch sessions already; that is the most", "max_watch_sessions", most)
        session = Session("wid_" + secrets.token_urlsafe(16), key, cursors, view, heartbeat_ms)
        self._sessions[session.wid] = session
        self._rest(session)
        return session

    def count(self, key: Key) -> int:
        """How many there are; of a key with prefixes, how many of its own."""
        if not key.prefixes:
            return len(self._sessions)
        return sum(session.key.digest == key.digest for session in self._sessions.values())

    def open(self, wid: str, key: Key) -> Session:
        """The session, with one more stream. Raises 404 and 401."""
        self._collect()
        session = self._sessions.get(wid)
        if session is None:
            raise HttpError(404, "not_found", f"there is no watch session {wid[:64]!r}; make one with POST /v0/watch")
        if session.key.digest != key.digest:
            raise HttpError(
                401, "unauthorized", "this watch session was made with another key",
                headers=[(b"www-authenticate", b"Bearer")],
            )  # fmt: skip
        session.streams += 1
        self._idle.pop(wid, None)
        return session

    def closed(self, session: Session) -> None:
        """One stream less. A session that has nothing left to follow goes."""
        session.streams -= 1
        if not session.streams:
            if session.cursors:
                self._rest(session)
            else:
                self._forget(session)

    def _rest(self, session: Session) -> None:
        session.idle_ms = self._front.broker.now_ms()
        self._idle[session.wid] = session
        self._front.watch_sessions = len(self._sessions)

    def _collect(self) -> None:
        oldest_ms = self._front.broker.now_ms() - SESSION_TTL_MS
        while self._idle:
            session = next(iter(self._idle.values()))
            if session.idle_ms > oldest_ms:
                break
            self._forget(session)

    def _forget(self, session: Session) -> None:
        self._idle.pop(session.wid, None)
        self._sessions.pop(session.wid, None)
        self._front.watch_sessions = len(self._sessions)

"""Finds the key of a request, and slows down those who guess (fronts/guesses.py).

Every request carries its secret, so every request is an attempt. Not every one can be counted as a guess: a client
whose key is right would have to wait with those who guess from its address. So what a connection sent last and was
right is remembered with the connection, as a digest, and needs no place; anything else does. That holds for HTTP/2 and
WebSocket, too: a tunnel knows whose it is (wire/tunnel.py).
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from esker.errors import EskerError
from esker.fronts.access import ANYONE
from esker.fronts.guesses import Place, penalty_s
from esker.fronts.http.calls import Call
from esker.fronts.http.errors import HttpError
from esker.fronts.http.peers import Peer

_BEARER: Final = b"bearer "


class LoginWaits(EskerError):
    """The key of a call is not known yet: `Call.login` has to be awaited."""


class Login:
    """An attempt that has to wait for its place, or whose failure is told late."""

    __slots__ = ("_call", "_peer", "_place", "_secret", "settled")

    def __init__(self, call: Call, peer: Peer, place: Place, secret: bytes) -> None:
        self._call = call
        self._peer = peer
        self._place = place
        self._secret = secret
        self.settled = False

    async def settle(self) -> None:
        """Gives the call its key. Raises 401."""
        if self._place.wait_s:
            await asyncio.sleep(self._place.wait_s)
        if not look(self._call, self._peer, self._place, self._secret):
            self._peer.failures += 1
            await asyncio.sleep(penalty_s(self._peer.failures))
            raise unauthorized()
        self.settled = True


def authenticate(call: Call, token_in_query: bool = False) -> None:
    """Gives a call its key. Raises 401, 429 and `LoginWaits`."""
    keys = call.front.keys
    if not keys.required:
        call.key = ANYONE
        return
    if call.login is not None:
        if not call.login.settled:
            raise LoginWaits
        return
    secret = _secret(call, token_in_query)
    if not secret:
        raise unauthorized()  # not even a guess
    peer = call.peer
    if peer.proven and compare_digest(sha256(secret).digest(), peer.proven):
        key = keys.find(secret)
        if key is not None:
            call.key = key
            return
    place = keys.guesses.place(peer.address)
    if place is None:
        raise HttpError(429, "throttled", "too many wrong keys came from this address; try again in some seconds")
    if place.wait_s or not look(call, peer, place, secret):
        call.login = Login(call, peer, place, secret)
        raise LoginWaits


def look(call: Call, peer: Peer, place: Place, secret: bytes) -> bool:
    """Whether the secret is right; then the call has its key, and the place is free again."""
    key = call.front.keys.find(secret)
    if key is None:
        return False
    place.cancel()
    call.key = key
    peer.proven, peer.failures = key.digest, 0
    return True


def _secret(call: Call, token_in_query: bool) -> bytes:
    told = call.header(b"authorization")
    if told is not None and told[: len(_BEARER)].lower() == _BEARER:
        return told[len(_BEARER) :].strip()
    if told is None and token_in_query:
        return call.query.get("token", "").encode("utf-8", "surrogateescape")
    return b""


def unauthorized() -> HttpError:
    return HttpError(
        401, "unauthorized", "a known key is needed: Authorization: Bearer <key>",
        headers=[(b"www-authenticate", b"Bearer")],
    )  # fmt: skip

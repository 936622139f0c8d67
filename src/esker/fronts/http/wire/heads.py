"""Reading requests whose heads are known, without parsing them.

Clients send the same head again and again: the same method, path and headers, bodies of a few lengths. A request that
came alone in one piece leaves its head behind with what the parser made of it, and the next one that begins with the
very same bytes, and is as long as they say, is that request with another body. The parser never sees it.

Heads that hold a secret are not kept: nothing but its digest outlives a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from esker.fronts.http.peers import PEER

if TYPE_CHECKING:
    from esker.fronts.http.errors import Header
    from esker.fronts.http.wire.exchange import Exchange

HEAD_BYTES_MAX: Final = 256 * 1024  # of any request, in every version of HTTP
HEADERS_MAX: Final = 256  # in HTTP/1.1: each costs more than its bytes
_END: Final = b"\r\n\r\n"
_HEADS_MAX: Final = 1024  # that are remembered
_HEAD_BYTES_MAX: Final = 2048  # of one that is worth it
_HEADERS_MAX: Final = 32  # the same: each costs more than its bytes
_KEEP: Final = b"keep-alive"
_NOT_PLAIN: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade"})
_SECRET: Final = frozenset({b"authorization", b"cookie", b"proxy-authorization"})


class Head(NamedTuple):
    method: str
    target: bytes
    headers: list[Header]
    by_name: Mapping[bytes, bytes]
    scope: Mapping[str, object]
    body_bytes: int


class Heads:
    """Those of plain requests, after which the connection goes on, by their bytes."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, Head] = {}  # oldest first

    def split(self, data: bytes) -> tuple[Head, bytes] | None:
        """Head and body, if `data` is one whole request with a known head."""
        start = data.find(_END, 0, _HEAD_BYTES_MAX) + len(_END)
        head = self._known.get(data[:start])
        if head is None or len(data) != start + head.body_bytes:
            return None
        return head, data[start:]

    def learn(self, data: bytes, exchange: Exchange) -> None:
        """`data` was parsed to this one request, to its end."""
        start = data.find(_END, 0, _HEAD_BYTES_MAX) + len(_END)
        by_name = dict(reversed(exchange.headers))
        told = by_name.get(b"content-length", b"0")
        # A head that ends elsewhere than it seems (some lines may end otherwise) leaves another length for the body.
        if start < len(_END) or not told.isdigit() or int(told) != len(data) - start:
            return
        if not _is_plain(exchange) or len(exchange.headers) > _HEADERS_MAX:
            return
        if not _SECRET.isdisjoint(by_name) or b"token=" in exchange.target:
            return
        if len(self._known) >= _HEADS_MAX:
            del self._known[next(iter(self._known))]
        self._known[data[:start]] = Head(
            exchange.method, exchange.target, exchange.headers, by_name, _anyones(exchange.scope()), len(data) - start
        )


def _anyones(scope: Mapping[str, object]) -> Mapping[str, object]:
    """Without whom it came from: the next request with this head may come from another."""
    return {name: value for name, value in scope.items() if name != PEER}


def _is_plain(exchange: Exchange) -> bool:
    """It is what it seems, and the connection goes on behind it as it was."""
    if exchange.old or not exchange.keep_alive:
        return False
    return all(
        value.lower() == _KEEP if name == b"connection" else name not in _NOT_PLAIN for name, value in exchange.headers
    )

"""How refusals look over HTTP: one table from the engine's codes to a status and a stable word.

    {"error": {"code": "topic_not_found", "message": "no topic 'mail'", "detail": {"topic": "mail"}}}

A top-level `error` is the only mark of a failure. The message is for people, the detail for programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from esker.engine.replies import Reply
from esker.errors import Code, EskerError, InvariantBroken, Refusal

Header = tuple[bytes, bytes]

STATUSES: Final[dict[Code, tuple[int, str]]] = {
    Code.BAD_REQUEST: (400, "invalid_request"),
    Code.STALE_TOKEN: (400, "invalid_request"),
    Code.TOO_LATE: (400, "invalid_request"),
    Code.RECORD_TOO_LARGE: (400, "record_too_large"),
    Code.PAYLOAD_TOO_LARGE: (400, "record_too_large"),
    Code.BATCH_TOO_LARGE: (400, "batch_too_large"),
    Code.TOPIC_NOT_FOUND: (404, "topic_not_found"),
    Code.ROUTER_NOT_FOUND: (404, "router_not_found"),
    Code.JOB_NOT_FOUND: (404, "not_found"),
    Code.TOPIC_EXISTS: (409, "topic_exists_incompatible"),
    Code.TOPIC_INCOMPATIBLE: (409, "topic_exists_incompatible"),
    Code.TOPIC_NOT_EMPTY: (409, "topic_not_empty"),
    Code.NOT_A_QUEUE: (409, "not_a_queue"),
    Code.ROUTER_CYCLE: (409, "router_cycle"),
    Code.TOPIC_FULL: (422, "topic_full"),
    Code.QUEUE_FULL: (422, "topic_full"),
    Code.PAUSED: (429, "throttled"),
    Code.TOO_MANY_IN_FLIGHT: (429, "throttled"),
    Code.OUT_OF_MEMORY: (429, "throttled"),
    Code.DISK_FULL: (429, "throttled"),
    Code.LIMIT_REACHED: (429, "throttled"),
    Code.NO_REPLICAS: (503, "not_ready"),
}

RETRY_AFTER: Final[Header] = (b"retry-after", b"1")
_RETRY_LATER = frozenset({429, 503})
_encode = msgspec.json.Encoder().encode

R = TypeVar("R")


class HttpError(EskerError):
    """A request is answered with an error body; the connection goes on."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        detail: Mapping[str, object] | None = None,
        headers: Sequence[Header] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.detail: Mapping[str, object] = detail or {}
        self.headers: Sequence[Header] = (*headers, RETRY_AFTER) if status in _RETRY_LATER else headers

    def body(self) -> bytes:
        error: dict[str, object] = {"code": self.code, "message": self.message or self.code}
        if self.detail:
            error["detail"] = _plain(self.detail)
        return _encode({"error": error})


def invalid(message: str, detail: Mapping[str, object] | None = None) -> HttpError:
    return HttpError(400, "invalid_request", message, detail)


def throttled(message: str, limit: str | None = None, most: int = 0) -> HttpError:
    """A cap is reached. `limit` names it for programs, where it has a name."""
    return HttpError(429, "throttled", message, None if limit is None else {"limit": limit, "max": most})


def forbidden(message: str, topic: bytes | None = None) -> HttpError:
    return HttpError(403, "forbidden", message, None if topic is None else {"topic": topic})


def internal(message: str) -> HttpError:
    return HttpError(500, "internal", message)


def refused(refusal: Refusal, topic: bytes | None = None) -> HttpError:
    """`topic` is told to programs where the refusal is about a topic and does not name it itself."""
    status, code = STATUSES[refusal.code]
    detail = dict(refusal.detail)
    if topic is not None and refusal.code in (Code.TOPIC_NOT_FOUND, Code.NOT_A_QUEUE, Code.TOPIC_NOT_EMPTY):
        detail.setdefault("topic", topic)
    return HttpError(status, code, refusal.message, detail)


def expect(kind: type[R], reply: Reply, topic: bytes | None = None) -> R:
    """The reply as the kind its command is answered with; a refusal becomes an `HttpError`."""
    if isinstance(reply, kind):
        return reply
    if isinstance(reply, Refusal):
        raise refused(reply, topic)
    raise InvariantBroken(f"the engine answered {type(reply).__name__} where {kind.__name__} was promised")


def _plain(value: object) -> object:
    """Names are bytes in the engine and texts in JSON."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)

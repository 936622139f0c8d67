"""What streams say, for `/docs`: events of SSE, messages of the WebSocket. OpenAPI has no room for them."""

from __future__ import annotations

from typing import Final

Table = tuple[tuple[str, str], ...]

_GAP: Final = "topic, reason, gap_from, gap_to, earliest_seq, head_seq: these records are lost"
_CAUGHT_UP: Final = "topic, head_seq: from here on records come as they are written"
_DELETED: Final = "topic, head_seq, reason: nothing more comes of it"

WATCH_EVENTS: Final[Table] = (
    ("record", "topic, records, from_seq, to_seq, head_seq"),
    ("tombstone", _GAP),
    ("caught-up", _CAUGHT_UP),
    ("topic-deleted", f"{_DELETED}; the stream ends with the last of its topics"),
    ("error", "code, message: the stream ends, as when the server stops (server_shutting_down)"),
)
WORK_EVENTS: Final[Table] = (
    ("job", "topic, $seq, lease_id, deadline, $ts, deliveries, data, and $tag and meta if it has them"),
    ("error", "code, message: the stream ends, with 409 when the topic is no queue any more"),
)
REQUESTS: Final[Table] = (
    ("subscribe", "topic (with from_seq, tail) or topics, and the rest of a watch; lenient"),
    ("unsubscribe", "topic or topics"),
    ("publish", "topic, records, and what else a write may say; return_seqs"),
    ("ping", ""),
)
ANSWERS: Final[Table] = (
    ("subscribed", "request_id, topics: where each begins"),
    ("unsubscribed", "request_id, topics"),
    ("ack", "request_id, and what a write is answered with"),
    ("record", "topic, records, from_seq, to_seq, head_seq"),
    ("tombstone", _GAP),
    ("caught_up", _CAUGHT_UP),
    ("topic_deleted", _DELETED),
    ("pong", "request_id"),
    ("error", "request_id, code, message: the request was refused"),
)

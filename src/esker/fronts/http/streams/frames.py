"""Server-sent events: what a frame looks like, and the id by which a reader resumes.

An id is the reader's whole position, `{"jobs":5210,"events":88130}` as unpadded base64url, so one id restores every
topic at once. Ids are opaque to readers; one that cannot be decoded is ignored, as if it had not been sent.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import Final

import msgspec

HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
RETRY: Final = b"retry: 2000\n\n"  # how long a client waits before it connects again
EVENT_ID_BYTES_MAX: Final = 128 * 1024  # of a Last-Event-ID: 256 names of 255 bytes fit

_encode = msgspec.json.Encoder().encode
_decode_position = msgspec.json.Decoder(dict[str, int]).decode


def frame(event: bytes, data: bytes, event_id: bytes | None = None) -> bytes:
    """`data` is JSON. A line break in it can only be white space between values, since texts escape theirs."""
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    if event_id is None:
        return b"event: %b\ndata: %b\n\n" % (event, data)
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id, event, data)


def json_frame(event: bytes, data: Mapping[str, object], event_id: bytes | None = None) -> bytes:
    return frame(event, _encode(data), event_id)


def heartbeat(now_ms: int) -> bytes:
    """A comment: it neither is an event nor moves the reader's position."""
    return b": hb %d\n\n" % now_ms


def encode_position(position: Mapping[str, int]) -> bytes:
    return urlsafe_b64encode(_encode(position)).rstrip(b"=")


def decode_position(event_id: bytes) -> Mapping[str, int]:
    """Empty when the id is not one of ours."""
    if not event_id or len(event_id) > EVENT_ID_BYTES_MAX:
        return {}
    try:
        position = _decode_position(urlsafe_b64decode(event_id + b"=" * (-len(event_id) % 4)))
    except (NotBase64, ValueError, msgspec.MsgspecError):
        return {}
    return {topic: seq for topic, seq in position.items() if seq >= 0}

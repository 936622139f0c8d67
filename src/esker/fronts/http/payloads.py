"""Payloads on their way through: JSON texts that nobody parses.

What HTTP clients write is checked to be JSON when it comes in (its body was decoded), so it can be put into an answer
as it is. What Redis clients put into a queue can be any bytes: a text that is no JSON is shown as a JSON string, bytes
that are no text as `{"$base64": "…"}`.
"""

from __future__ import annotations

from base64 import b64encode

import msgspec
from msgspec import Raw

_decode = msgspec.json.Decoder(Raw).decode
_encode = msgspec.json.Encoder().encode


def compact(text: Raw) -> bytes:
    """A copy, out of the request's buffer, without line breaks, which would break the frames of a stream."""
    data = bytes(text)
    if b"\n" in data or b"\r" in data:
        return msgspec.json.format(data, indent=-1)
    return data


def of_job(payload: bytes) -> bytes:
    """The payload of a job as JSON, whoever put it there."""
    try:
        if not payload.isascii():
            payload.decode()
        _decode(payload)
    except UnicodeDecodeError:
        return _encode({"$base64": b64encode(payload).decode()})
    except (msgspec.DecodeError, RecursionError):
        return _encode(payload.decode())
    return payload


def text(value: bytes) -> str:
    """A tag or node as text."""
    return value.decode("utf-8", "backslashreplace")

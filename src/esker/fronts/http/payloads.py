"""Payloads on their way through: JSON texts that nobody parses.

What HTTP clients write is checked to be JSON when it comes in (its body was decoded), so it can be put into an answer
as it is. What Redis clients put into a queue can be any bytes: a text that is no JSON is shown as a JSON string, bytes
that are no text as `{"$base64": "…"}`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

import msgspec
from msgspec import Raw

_decode = msgspec.json.Decoder(Raw).decode
_decode_all = msgspec.json.Decoder(list[Raw]).decode
_TOGETHER_BYTES_MAX = 64 * 1024  # of payloads that are looked at together: beyond, copying them costs more
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


def of_jobs(payloads: Sequence[bytes]) -> Sequence[bytes]:
    """The same of many. Most are JSON, which is seen by looking at all of them in one go.

    Joined by commas they are an array. If its values are as long as the payloads, one by one, they are the payloads:
    nothing was between them but the commas.
    """
    sizes = list(map(len, payloads))
    if sum(sizes) <= _TOGETHER_BYTES_MAX:
        together = b"[%b]" % b",".join(payloads)
        try:
            if together.isascii() and list(map(_size, _decode_all(together))) == sizes:
                return payloads
        except (msgspec.DecodeError, RecursionError):
            pass  # one of them is none: each for itself
    return list(map(of_job, payloads))


def _size(text: Raw) -> int:
    return len(memoryview(text))


def text(value: bytes) -> str:
    """A tag or node as text."""
    return value.decode("utf-8", "backslashreplace")

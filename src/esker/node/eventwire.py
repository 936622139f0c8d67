"""What the node and its worker (eventworker.py) say to each other: one message at a time, over a pair of pipes.

A message is a head of fixed size, a struct in MessagePack, and, of an answer, bytes that are passed on as they are.
"""

from __future__ import annotations

import struct
from typing import IO, Final

import msgspec

from esker.columns.eventwish import Wanted
from esker.errors import EskerError

_HEAD: Final = struct.Struct("<IQ")  # bytes of the struct, and of what follows it


class Learn(msgspec.Struct, frozen=True, tag="learn"):
    """What numbers stand for: of topics, and of routers with the number of their destination. Not answered."""

    topics: list[tuple[int, bytes]]
    routers: list[tuple[int, bytes, int]]


class ReadEvents(msgspec.Struct, frozen=True, tag="read"):
    """The next rows of a segment: of positions from `start` on and below `end`. Answered with `Rows`.

    `cursor` names who reads: it goes on where it was if that is known and was `start`.
    """

    cursor: int
    path: str
    start: int
    end: int
    wanted: Wanted


class LeaveEvents(msgspec.Struct, frozen=True, tag="leave"):
    """The cursor is needed no more. Not answered."""

    cursor: int


class ArchiveEvents(msgspec.Struct, frozen=True, tag="archive"):
    """A step towards the files of a segment; the first with `again`, whatever was made of it before.

    Answered with `Step`.
    """

    path: str
    again: bool


Request = Learn | ReadEvents | LeaveEvents | ArchiveEvents


class Rows(msgspec.Struct, frozen=True, tag="rows"):
    """`next`: what is told so far ends below this position. `gone`: the segment no longer holds it."""

    next: int
    gone: bool = False


class Step(msgspec.Struct, frozen=True, tag="step"):
    """A file is done if it has a name. `done`: so is the segment."""

    name: str = ""
    done: bool = False


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    why: str


Answer = Rows | Step | Failed


class PipeClosed(EskerError):
    """The other side is no more."""


_encode = msgspec.msgpack.Encoder().encode
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def send(pipe: IO[bytes], message: Request | Answer, data: bytes = b"") -> None:
    """Raises PipeClosed."""
    body = _encode(message)
    try:
        pipe.write(_HEAD.pack(len(body), len(data)) + body)
        if data:
            pipe.write(data)
        pipe.flush()
    except (OSError, ValueError) as error:
        raise PipeClosed("the pipe is closed") from error


def receive_request(pipe: IO[bytes]) -> Request:
    """Raises PipeClosed."""
    length, _ = _HEAD.unpack(_exactly(pipe, _HEAD.size))
    return _requests.decode(_exactly(pipe, length))


def receive_answer(pipe: IO[bytes]) -> tuple[Answer, bytes]:
    """Raises PipeClosed."""
    length, size = _HEAD.unpack(_exactly(pipe, _HEAD.size))
    answer = _answers.decode(_exactly(pipe, length))
    return answer, _exactly(pipe, size)


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    try:
        data = pipe.read(size)
    except (OSError, ValueError) as error:
        raise PipeClosed("the pipe is closed") from error
    if len(data) < size:
        raise PipeClosed("the pipe is closed")
    return data

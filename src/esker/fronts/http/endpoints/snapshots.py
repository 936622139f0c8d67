"""Snapshots of queues: take one, fetch it in chunks as columns, delete it. They need the key's reach of the queue."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated, BinaryIO, Final, Literal

import msgspec
from msgspec import Meta

from esker.engine import limits
from esker.engine.config import TopicType
from esker.engine.queues.snapshot import LIVING, STATES, Selection
from esker.engine.topics import not_found
from esker.errors import SnapshotProblem, SnapshotRefused
from esker.fronts.http.answers import encode
from esker.fronts.http.bodies import Tag, Unsigned, check_unsigned, extra
from esker.fronts.http.calls import Answer, Call
from esker.fronts.http.endpoints.topics import named_topic
from esker.fronts.http.errors import HttpError, invalid, refused
from esker.fronts.http.selectors import encoded
from esker.fronts.http.streams.columns import need_arrow, need_columns, stream_arrow
from esker.node.snapshots import gone

_PIECE_BYTES: Final = 1 << 20
_COLUMNS_MAX: Final = 64
COLUMNS: Final = (
    "message_id", "topic", "partition", "offset", "state", "priority", "attempts", "nacks", "requeues", "created",
    "due", "expires", "lease", "holder", "tag", "node", "meta", "key", "value", "size",
)  # fmt: skip
_SOME: Final[dict[str, object]] = {"minItems": 1, "uniqueItems": True}
Column = Annotated[str, extra(enum=list(COLUMNS))]
CHUNK_MAX: Final = 10**9 - 1
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_STATUSES: Final[dict[SnapshotProblem, tuple[int, str]]] = {
    SnapshotProblem.GONE: (404, "snapshot_gone"),
    SnapshotProblem.FAILED: (500, "snapshot_failed"),
    SnapshotProblem.TOO_MANY: (429, "throttled"),
    SnapshotProblem.NO_ROOM: (507, "no_room"),
}

Priority = Annotated[int, Meta(ge=limits.PRIORITY_MIN, le=limits.PRIORITY_MAX)]


class SnapshotBody(msgspec.Struct, kw_only=True):
    """What is wanted of which jobs; what is left out narrows nothing. `until_ms` is the first not wanted."""

    columns: Annotated[list[Column], Meta(max_length=_COLUMNS_MAX, extra_json_schema=_SOME)] | None = None
    priority_min: Priority | None = None
    priority_max: Priority | None = None
    states: list[Literal["ready", "delayed", "leased", "withdrawn", "spent"]] | None = None
    tag_prefix: Tag | None = None
    since_ms: Unsigned | None = None
    until_ms: Unsigned | None = None

    def __post_init__(self) -> None:
        check_unsigned(since_ms=self.since_ms, until_ms=self.until_ms)


class SnapshotAnswer(msgspec.Struct):
    snapshot: str
    position: int
    epoch: int
    jobs: int
    chunks: int
    expires_ms: int


class ChunkFileAnswer(msgspec.Struct):
    path: str


class SnapshotDeletedAnswer(msgspec.Struct):
    snapshot: str
    deleted: bool


_decoder = msgspec.json.Decoder(SnapshotBody)


async def take_snapshot(call: Call) -> Answer:
    name = named_topic(call)
    body = await call.json(_decoder, empty=b"{}")
    wanted = _selection(body)
    broker = call.front.broker
    _need_queue(call, name)
    await _check_columns(call, body.columns)
    _need_queue(call, name)  # it may have gone meanwhile
    try:
        taken = broker.snapshots.take(name, wanted, body.columns)
    except SnapshotRefused as error:
        raise _refused(error) from error
    return Answer(encode(SnapshotAnswer(*taken)), status=201, topic=name)


async def read_chunk(call: Call) -> None:
    """Streams a chunk, as soon as it is there."""
    name, number = _named(call), _chunk(call)
    await need_arrow(call)
    try:
        async with call.front.broker.snapshots.chunk(name, number) as file:
            if file is None:
                raise _no_chunk(number)
            await stream_arrow(call, (), _pieces(file))
    except SnapshotRefused as error:
        raise _refused(error) from error


async def chunk_file(call: Call) -> Answer:
    """Where a chunk lies, as soon as it is there, for who can open it."""
    name, number = _named(call), _chunk(call)
    try:
        path = await call.front.broker.snapshots.file(name, number)
    except SnapshotRefused as error:
        raise _refused(error) from error
    if path is None:
        raise _no_chunk(number)
    return Answer(encode(ChunkFileAnswer(path)))


async def delete_snapshot(call: Call) -> Answer:
    name = _named(call)
    try:
        await call.front.broker.snapshots.delete(name)
    except SnapshotRefused as error:
        raise _refused(error) from error
    return Answer(encode(SnapshotDeletedAnswer(name, True)))


def _named(call: Call) -> str:
    """The snapshot of the path, whose queue this key reaches."""
    name = call.params["snapshot"]
    snapshots = call.front.broker.snapshots
    try:
        if not call.key.reaches(snapshots.topic_of(name)):
            raise gone()  # of a queue that this key does not reach: the same as if it were not there
    except SnapshotRefused as error:
        raise _refused(error) from error
    return name


def _chunk(call: Call) -> int:
    text = call.params["chunk"]
    if _NUMBER.fullmatch(text) is None:
        raise invalid(f"chunk is {text[:40]!r}; expected a number")
    return int(text)


def _no_chunk(number: int) -> HttpError:
    return HttpError(404, "not_found", f"the snapshot has no chunk {number}")


def _need_queue(call: Call, name: bytes) -> None:
    config = call.front.broker.config_of(name)
    if config is None:
        raise refused(not_found(name), name)
    if config.type != TopicType.QUEUE:
        raise HttpError(
            409, "wrong_type", f"topic {name.decode()!r} is a {config.type.value}: only queues have snapshots",
            {"topic": name},
        )  # fmt: skip


async def _check_columns(call: Call, columns: list[str] | None) -> None:
    await need_columns()
    from esker.columns.arrow import UnknownColumn

    try:
        await call.front.broker.snapshots.prepare(columns)
    except UnknownColumn as error:
        raise invalid(f"columns: {error}") from error


def _selection(body: SnapshotBody) -> Selection:
    return Selection(
        states=LIVING if body.states is None else frozenset(STATES[state] for state in body.states),
        priority_min=body.priority_min,
        priority_max=body.priority_max,
        tag_prefix=b"" if body.tag_prefix is None else encoded(body.tag_prefix, "tag_prefix", limits.TAG_BYTES_MAX),
        since_ms=body.since_ms,
        until_ms=body.until_ms,
    )


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    while piece := await loop.run_in_executor(None, file.read, _PIECE_BYTES):
        yield piece


def _refused(error: SnapshotRefused) -> HttpError:
    status, code = _STATUSES[error.problem]
    return HttpError(status, code, str(error))

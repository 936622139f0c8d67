"""For readers that want much of it: what there is, and ranges of logs as columns."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import Meta

from esker.engine import limits
from esker.engine.logs.gaps import Gap
from esker.fronts.http.answers import encode
from esker.fronts.http.bodies import DiffBody, TopicName, Unsigned, both, check_unsigned
from esker.fronts.http.calls import Answer, Call
from esker.fronts.http.endpoints.topics import named_topic
from esker.fronts.http.errors import Header, HttpError, invalid
from esker.fronts.http.names import fits, topic_name
from esker.fronts.http.queries import Choice, Matched, Number, Words
from esker.fronts.http.reading import to_nodes
from esker.fronts.http.schemas import Schema
from esker.fronts.http.streams.columns import ARROW_MEDIA, need_arrow, need_columns, stream_arrow
from esker.node.planning import PATTERN_CHARS_MAX, TIMES_MAX, TOPICS_MAX, PlanRefused, PlanWish
from esker.node.ranges import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    NotHere,
    Range,
    RangeLost,
    RangeRefused,
    RangeWish,
    Room,
)
from esker.node.spool import NoFile

COLUMNS: Final = ("offset", "timestamp", "value", "tag", "node", "meta")
_BLOCK_ROWS: Final = 256  # of a diff that does not say how many
_MS_MAX: Final = 1 << 53
FROM: Final = Number("from", "the first offset", least=1, most=limits.SEQ_MAX + 1, default=1)
TO: Final = Number("to", "the offset behind the last; else all there are", least=0, most=limits.SEQ_MAX + 1)
EPOCH: Final = Number("epoch", "refuse when the topic was made again since", least=0, most=limits.TOPIC_NUMBERS_MAX)
WANTED: Final = Words("columns", f"which, in this order; else {', '.join(COLUMNS)}", words=COLUMNS)
TAG_PREFIX: Final = Matched("tag_prefix", "only records whose tag begins so", bytes_max=limits.TAG_BYTES_MAX)
SINCE_MS: Final = Number("since_ms", "only records that came then or later", least=0, most=_MS_MAX)
UNTIL_MS: Final = Number("until_ms", "only records that came before", least=0, most=_MS_MAX)
ON_GAP: Final = Choice(
    "on_gap", "what to do where records of the range are lost", words=("fail", "skip"), default="fail"
)
RANGE: Final = (FROM, TO, EPOCH, WANTED, TAG_PREFIX, SINCE_MS, UNTIL_MS, ON_GAP)
_STATUSES: Final = {
    "invalid_request": 400,
    "topic_not_found": 404,
    "stale_epoch": 409,
    "wrong_type": 409,
    "data_loss": 410,
}


class PlanBody(msgspec.Struct, kw_only=True):
    """Topics by name, or by a regular expression (RE2) that their whole names match; else all. `files`: of records."""

    rules: ClassVar[Schema] = {"not": both("topics", "pattern")}

    topics: Annotated[list[TopicName], Meta(max_length=TOPICS_MAX)] | None = None
    pattern: Annotated[str, Meta(max_length=PATTERN_CHARS_MAX, extra_json_schema={"format": "re2"})] | None = None
    at_ms: Annotated[list[Unsigned], Meta(max_length=TIMES_MAX)] = []
    events: bool = False
    files: bool = True

    def __post_init__(self) -> None:
        check_unsigned(at_ms=max(self.at_ms, default=0))


class FileGap(msgspec.Struct):
    first: int
    last: int
    reason: str


class FileAnswer(msgspec.Struct):
    """`path` null: no record lives there. The range goes on at `next` and ends before `to`; `gaps` are of all of it."""

    path: str | None
    next: int
    to: int
    gaps: list[FileGap]


_plan_decoder = msgspec.json.Decoder(PlanBody)


async def make_plan(call: Call) -> Answer:
    body = await call.json(_plan_decoder, empty=b"{}")
    names: list[bytes] | None = None
    if body.topics is not None:
        if body.pattern is not None:
            raise invalid("topics and pattern are both given; give one of them")
        names = [topic_name(name) for name in body.topics]
        for name in names:
            call.reach(name, in_body=True)
    elif body.pattern is not None:
        await need_columns()
    wish = PlanWish(
        lambda name: fits(name) and call.key.reaches(name), names, body.pattern, body.at_ms, body.events, body.files
    )
    try:
        plan = await call.front.broker.plan(wish)
    except PlanRefused as error:
        raise invalid(str(error)) from error
    if call.key.prefixes and plan.events is not None:
        # The files of the history hold all topics. The node serves the same positions, for this key's topics alone.
        events = msgspec.structs.replace(plan.events, hot_from=plan.events.first, files=[])
        plan = msgspec.structs.replace(plan, events=events)
    return Answer(encode(plan))


async def read_records(call: Call) -> None:
    """Streams a range of a log."""
    name = named_topic(call)
    await need_arrow(call)
    found = open_range(call, _wish(call, name))
    await stream_arrow(call, _headers(found.number, found.gaps, to=found.end), found.pieces())


async def make_file(call: Call) -> Answer:
    """The next records of a range as a file, for who can open it."""
    name = named_topic(call)
    await need_columns()
    found = open_range(call, _wish(call, name))
    try:
        path, following = await found.file()
    except (NotHere, NoFile, RangeLost) as error:
        raise HttpError(409, "no_file", f"stream these records: {error}") from error
    gaps = [FileGap(gap.first, gap.last, gap.reason) for gap in found.gaps]
    return Answer(encode(FileAnswer(None if path is None else str(path), following, found.end, gaps)), topic=name)


async def read_block(call: Call, name: bytes, body: DiffBody) -> Answer:
    """A diff as one block of columns. What is lost is passed over, and told in the head."""
    await need_columns()
    wish = RangeWish(name, first=body.from_seq + 1, without_nodes=to_nodes(body.node), skip_gaps=True)
    found = open_range(call, wish)
    rows = min(body.limit or _BLOCK_ROWS, CHUNK_ROWS)
    data, last = await found.block(Room(rows, min(body.max_batch_bytes or CHUNK_BYTES, CHUNK_BYTES)))
    headers = _headers(found.number, found.gaps, next=last + 1, head=found.end - 1)
    return Answer(data, media=ARROW_MEDIA, headers=tuple(headers))


def _headers(number: int, gaps: list[Gap], **numbers: int) -> list[Header]:
    told = [(b"esker-epoch", b"%d" % number), *((f"esker-{name}".encode(), b"%d" % at) for name, at in numbers.items())]
    if gaps:
        told.append((b"esker-gaps", _shown_gaps(gaps)))
    return told


def open_range(call: Call, wish: RangeWish) -> Range:
    """Raises HttpError."""
    from esker.columns.arrow import UnknownColumn

    try:
        return call.front.broker.read_range(wish)
    except RangeRefused as error:
        raise HttpError(_STATUSES[error.code], error.code, str(error), error.detail) from error
    except UnknownColumn as error:
        raise invalid(f"columns: {error}") from error


def _shown_gaps(gaps: list[Gap]) -> bytes:
    return encode([{"first": gap.first, "last": gap.last, "reason": gap.reason} for gap in gaps])


def _wish(call: Call, name: bytes) -> RangeWish:
    prefix = TAG_PREFIX.read(call).encode("utf-8", "surrogateescape")
    if len(prefix) > limits.TAG_BYTES_MAX:
        raise invalid(f"tag_prefix has {len(prefix)} bytes; at most {limits.TAG_BYTES_MAX}")
    return RangeWish(
        topic=name,
        first=FROM.read(call) or 1,
        end=TO.read(call),
        epoch=EPOCH.read(call),
        columns=WANTED.read(call),
        tag_prefix=prefix,
        since_ms=SINCE_MS.read(call),
        until_ms=UNTIL_MS.read(call),
        skip_gaps=ON_GAP.read(call) == "skip",
    )

"""Bulk loads: stage parts, commit them in one step, ask how far they are, throw away what was not committed.

The name of a load belongs to the prefixes of the key that uses it: keys with other prefixes have loads of the same name
for themselves. So whoever can name a part reaches every topic that it was staged for.

A part may be large, so its body goes to disk as it comes and is never held in memory; `max_body_bytes` is not for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Final, Literal

import msgspec

from esker.engine.config import TopicConfig, TopicType
from esker.errors import LoadProblem, LoadRefused, Refusal
from esker.fronts.access import Scope
from esker.fronts.http.answers import encode
from esker.fronts.http.bodies import ConfigBody, TopicName, extra
from esker.fronts.http.calls import Answer, Call, ClientLeft, Message
from esker.fronts.http.configs import to_config
from esker.fronts.http.errors import HttpError, invalid, refused
from esker.fronts.http.names import TOPIC_PATTERN, topic_name
from esker.fronts.http.queries import Choice, Clamped, Matched
from esker.fronts.http.schemas import whole
from esker.node.loading import Order
from esker.node.publishing import LoadState
from esker.node.staging import (
    ATTEMPT_PATTERN,
    NUMBER_MAX,
    PART_PATTERN,
    PARTS_MAX,
    Place,
    ValueFormat,
    attempt_problem,
    load_problem,
    part_name,
    part_number,
)

ATTEMPT: Final = Matched(
    "attempt", "who sends it: hexadecimal digits, new for each attempt", pattern=ATTEMPT_PATTERN, required=True
)
TOPIC: Final = Matched(
    "topic", "that the rows are for, if it is known: they can be committed into no other", pattern=TOPIC_PATTERN
)
TYPE: Final = Choice("type", "if it is known: the rows are checked for it at once", words=("log", "queue"))
VALUE_FORMAT: Final = Choice("value_format", "as in the commit, if it is known", words=("json", "text"))
WAIT_MS: Final = Clamped("wait_ms", "wait so long for it to be done or to fail", least=0, most=60_000, default=0)
_DRAIN_BYTES: Final = 64 << 20  # of a body that is refused, thrown away before the answer
_DRAIN_S: Final = 30.0
_IDLE_S: Final = 60.0

STATUSES: Final[dict[LoadProblem, tuple[int, str]]] = {
    LoadProblem.BAD_PART: (400, "invalid_request"),
    LoadProblem.BAD_COMMIT: (400, "invalid_request"),
    LoadProblem.TOO_LARGE: (413, "payload_too_large"),
    LoadProblem.NO_ROOM: (507, "insufficient_storage"),
    LoadProblem.TOO_MANY: (429, "throttled"),
    LoadProblem.COMMITTED: (409, "load_committed"),
    LoadProblem.NOT_AVAILABLE: (501, "not_available"),
}


PartName = Annotated[str, extra(pattern=whole(PART_PATTERN))]


class CommitBody(msgspec.Struct, kw_only=True):
    """`topic` null: the rows have a column `topic`. `type` null: as the topic is, and a log where it is made.

    A `config.type` must be the same as `type`.
    """

    parts: Annotated[list[PartName], msgspec.Meta(max_length=PARTS_MAX)]
    topic: TopicName | None = None
    type: Literal["log", "queue"] | None = None
    create: bool = True
    config: ConfigBody | None = None
    share: Annotated[float, msgspec.Meta(ge=0.05, le=1)] = 0.5
    value_format: Literal["json", "text"] | None = None


class StagedAnswer(msgspec.Struct):
    staged: str
    rows: int
    bytes: int


class LoadAnswer(msgspec.Struct, kw_only=True):
    """`published` of `rows` are in. `message`: why it failed, or what it waits for."""

    state: Literal["staged", "publishing", "done", "failed", "unknown"]
    rows: int
    published: int
    message: str | None
    duplicate: bool = False


class AbortedAnswer(msgspec.Struct):
    dropped: int


_commit_decoder = msgspec.json.Decoder(CommitBody)


async def stage_part(call: Call) -> Answer:
    try:
        place = _place(call)
        bound = _bound_topic(call)
        name = part_name(_number(call, "part"), _attempt(call), bound)
        kind = TYPE.read(call)
        value_format = _value_format(VALUE_FORMAT.read(call))
        upload = await call.front.broker.loads.open(place, name)
    except (HttpError, LoadRefused) as error:
        await _drain(call)
        raise _told(error) from error
    more = True
    try:
        try:
            while more:
                message = await _next(call)
                if message["type"] == "http.disconnect":
                    raise ClientLeft("the client left before its part was complete")
                body = message.get("body", b"")
                assert isinstance(body, bytes)
                more = bool(message.get("more_body"))
                await upload.write(body)
            facts = await upload.check(None if kind is None else TopicType(kind), value_format)
            if bound is not None and "topic" in facts.columns:
                raise LoadRefused(LoadProblem.BAD_PART, "topic is given, and the part has a column topic")
            for topic in facts.topics:
                call.reach(topic, in_body=True)
                topic_name(topic.decode(), "topic")
            await upload.keep(facts)
        except LoadRefused as error:
            if more:
                await _drain(call)
            raise _told(error, name) from error
    finally:
        await asyncio.shield(upload.drop())
    return Answer(encode(StagedAnswer(name, facts.rows, facts.size)), status=201)


async def commit_batch(call: Call) -> Answer:
    place = _place(call)
    body = await call.json(_commit_decoder)
    _check_parts(body.parts)
    loads = call.front.broker.loads
    try:
        topics = [] if body.topic is None else [topic_name(body.topic)]
        if body.topic is None and (await loads.status(place)).state in ("staged", "unknown"):
            topics = sorted({name for facts in await loads.facts(place, body.parts) for name in facts.topics})
        for name in topics:
            call.reach(name, in_body=True)
        state = await loads.commit(_order(call, place, body, topics))
    except LoadRefused as error:
        raise _told(error) from error
    except Refusal as error:
        raise refused(error) from error
    return Answer(encode(_answer(state)), status=202)


async def get_batch(call: Call) -> Answer:
    place = _place(call)
    wait_ms = WAIT_MS.read(call)
    loads = call.front.broker.loads
    ended = loads.ended(place)
    if wait_ms and ended is not None:
        await _wait(call, ended, wait_ms)
    return Answer(encode(_answer(await loads.status(place))))


async def abort_batch(call: Call) -> Answer:
    place = _place(call)
    try:
        dropped = await call.front.broker.loads.abort(place)
    except LoadRefused as error:
        raise _told(error) from error
    return Answer(encode(AbortedAnswer(dropped)))


# -- what was asked


def _place(call: Call) -> Place:
    load = call.params["load"]
    problem = load_problem(load)
    if problem is not None:
        raise invalid(problem)
    return Place(load, _number(call, "batch"), call.key.namespace)


def _bound_topic(call: Call) -> bytes | None:
    """The topic that the rows are for, if it is said: then it is checked now, and the part is of no use for others."""
    text = TOPIC.read(call)
    if not text:
        return None
    name = topic_name(text)
    call.reach(name, in_body=True)
    return name


def _number(call: Call, name: str) -> int:
    text = call.params[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise invalid(f"{name} is {text[:40]!r}; expected a number from 0 to {NUMBER_MAX}")
    return int(text)


def _attempt(call: Call) -> str:
    attempt = ATTEMPT.read(call)
    problem = attempt_problem(attempt)
    if problem is not None:
        raise invalid(problem)
    return attempt


def _value_format(text: str | None) -> ValueFormat | None:
    return "json" if text == "json" else "text" if text == "text" else None


def _check_parts(names: list[str]) -> None:
    numbers: dict[int, str] = {}
    for name in names:
        number = part_number(name)
        if number is None:
            raise invalid(f"parts has {name[:80]!r}, which is no name that staging gave")
        if number in numbers:
            raise invalid(f"parts has part {number} twice: {numbers[number]} and {name}")
        numbers[number] = name


def _order(call: Call, place: Place, body: CommitBody, topics: list[bytes]) -> Order:
    broker = call.front.broker
    missing = [name for name in topics if broker.config_of(name) is None]
    config: TopicConfig | None = None
    kind = None if body.type is None else TopicType(body.type)
    if body.config is not None:
        if body.config.dead_letter is not None:
            call.reach(body.config.dead_letter.encode(), in_body=True)
        if missing:
            call.need(Scope.ADMIN)
        config = to_config(body.config, topics[0] if body.topic is not None else b"")
        if body.config.type is msgspec.UNSET and kind is not None:
            config = msgspec.structs.replace(config, type=kind)
        if kind is not None and config.type != kind:
            raise invalid(f"type is {kind}, and config.type is {config.type}")
    if body.create and missing:
        call.front.census.allow_topics(tuple(missing), call.front.options)
    return Order(
        place=place,
        parts=body.parts,
        topic=topics[0] if body.topic is not None else None,
        kind=kind,
        create=body.create,
        config=config,
        value_format=body.value_format,
        share=body.share,
    )


# -- what is answered


def _answer(state: LoadState) -> LoadAnswer:
    return msgspec.convert(state, LoadAnswer, from_attributes=True)


def _told(error: HttpError | LoadRefused, part: str | None = None) -> HttpError:
    if isinstance(error, HttpError):
        return error
    status, code = STATUSES[error.problem]
    detail: dict[str, object] = {}
    if part is not None:
        detail["part"] = part
    if error.row is not None:
        detail["row"] = error.row
    return HttpError(status, code, str(error) if part is None else f"part {part}: {error}", detail)


async def _next(call: Call) -> Message:
    """What comes next of a body. A client that neither sends nor leaves does not keep its place for ever."""
    try:
        async with asyncio.timeout(_IDLE_S):
            return await call.receive()
    except TimeoutError:
        raise invalid(f"nothing of the part came for {_IDLE_S:.0f} s; send it again") from None


async def _drain(call: Call) -> None:
    """Throws the rest of a refused body away: many clients do not look for an answer before they have sent it all."""
    if call.header(b"expect") is not None:
        return
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            while size < _DRAIN_BYTES:
                message = await call.receive()
                body = message.get("body", b"")
                size += len(body) if isinstance(body, bytes) else 0
                if not message.get("more_body"):
                    return


async def _wait(call: Call, ended: asyncio.Event, wait_ms: int) -> None:
    """Until the batch has ended, the time is up, the client has left, or the node stops."""
    waits = [asyncio.ensure_future(each) for each in (ended.wait(), call.front.stopping.wait(), call.left())]
    try:
        await asyncio.wait(waits, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        if waits[2].done() and not ended.is_set():
            raise ClientLeft("the client left while it waited for a load")
    finally:
        for each in waits:
            each.cancel()

"""Topics: make or change one, look at one or many, remove one."""

from __future__ import annotations

from typing import Final

import msgspec

from esker.engine.commands import DropTopic, ListTopics, PutTopic, TopicState
from esker.engine.config import Durability, TopicType
from esker.engine.replies import TopicDropped, TopicPage, TopicPut, TopicStatus
from esker.errors import Code, Refusal
from esker.fronts.http.answers import (
    ListedTopic,
    QueueAnswer,
    TopicAnswer,
    TopicDeletedAnswer,
    TopicPutAnswer,
    TopicsAnswer,
    encode,
)
from esker.fronts.http.bodies import ConfigBody
from esker.fronts.http.calls import Answer, Call
from esker.fronts.http.configs import shown, to_config
from esker.fronts.http.cursors import from_cursor, to_cursor
from esker.fronts.http.errors import expect, refused
from esker.fronts.http.names import fits, topic_name
from esker.fronts.http.queries import Clamped, Guard, Matched, Parameter, Switch

PREFIX: Final = Parameter("prefix", "only names that begin so")
PAGE_SIZE: Final = Clamped("page_size", "how many", least=1, most=1000, default=100)
CURSOR: Final = Matched("cursor", "next_cursor of the page before", form="cursor")
TOUCH: Final = Switch("touch", "count this as a consumption, which raises the topic's priority", default=True)
TOUCH_ALL: Final = Switch(TOUCH.name, TOUCH.says, default=False)
IF_EMPTY: Final = Guard("if_empty", "refuse when it holds anything")

_config_decoder = msgspec.json.Decoder(ConfigBody)


def named_topic(call: Call) -> bytes:
    """The topic of the path. Raises 400 when it is no name, 403 when this key does not reach it."""
    text = call.params["topic"]
    call.reach(text.encode("utf-8", "surrogateescape"))
    return topic_name(text)


async def put_topic(call: Call) -> Answer:
    name = named_topic(call)
    body = await call.json(_config_decoder, empty=b"{}")
    broker = call.front.broker
    if body.dead_letter is not None:
        call.reach(body.dead_letter.encode(), in_body=True)
    found = broker.handle(TopicState(name, touch=False))
    if isinstance(found, Refusal) and found.code != Code.TOPIC_NOT_FOUND:
        raise refused(found, name)
    known = found.config if isinstance(found, TopicStatus) else None
    config = to_config(body, name, known)
    put = expect(TopicPut, broker.handle(PutTopic(name, config)), name)
    answer = TopicPutAnswer(name.decode(), put.created, shown(put.status.config))
    return Answer(encode(answer), status=201 if put.created else 200, topic=name)


async def get_topic(call: Call) -> Answer:
    name = named_topic(call)
    found = call.front.broker.handle(TopicState(name, touch=TOUCH.read(call)))
    status = expect(TopicStatus, found, name)
    answer = TopicAnswer(
        topic=name.decode(),
        type=status.config.type.value,
        head_seq=status.head_seq,
        earliest_seq=status.earliest_seq,
        next_seq=status.next_seq,
        count=status.count,
        bytes=status.bytes,
        config=shown(status.config),
        effective_priority=status.effective_priority,
        last_write_ts=status.last_write_ms or None,
        last_read_ts=status.last_read_ms or None,
    )
    if status.config.type == TopicType.QUEUE:
        answer.queue = QueueAnswer(status.ready, status.in_flight, status.dead_lettered)
    return Answer(encode(answer))


async def list_topics(call: Call) -> Answer:
    prefix = call.query.get("prefix", "").encode("utf-8", "surrogateescape")
    size = PAGE_SIZE.read(call)
    after = from_cursor(CURSOR.read(call))
    touch = TOUCH_ALL.read(call)
    listed: list[TopicStatus] = []
    more = True
    while more and len(listed) <= size:  # one more than asked for tells whether there is a next page
        command = ListTopics(prefix, after, size + 1 - len(listed), touch and not call.key.prefixes)
        page = expect(TopicPage, call.front.broker.handle(command))
        listed += [status for status in page.topics if fits(status.name) and call.key.reaches(status.name)]
        more = page.more and len(page.topics) > 0
        after = page.topics[-1].name if page.topics else after
    if touch and call.key.prefixes:  # those of others were not looked at
        for status in listed[:size]:
            call.front.broker.handle(TopicState(status.name))
    answer = TopicsAnswer([_listed(status) for status in listed[:size]])
    if len(listed) > size:
        answer.next_cursor = to_cursor(listed[size - 1].name)
    return Answer(encode(answer))


def _listed(status: TopicStatus) -> ListedTopic:
    return ListedTopic(
        status.name.decode(),
        status.head_seq,
        status.earliest_seq,
        status.count,
        status.bytes,
        status.config.durability == Durability.FSYNC,
        status.effective_priority,
    )


async def delete_topic(call: Call) -> Answer:
    name = named_topic(call)
    command = DropTopic(name, if_empty=IF_EMPTY.read(call))
    dropped = expect(TopicDropped, call.front.broker.handle(command), name)
    removed = [
        router.decode("utf-8", "backslashreplace") for router in dropped.routers_removed if call.key.reaches(router)
    ]
    return Answer(encode(TopicDeletedAnswer(name.decode(), dropped.deleted, removed)))

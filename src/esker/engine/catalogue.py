"""Topics of any type as their users make, change, look at, list and remove them."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from esker.engine import commands, events, limits
from esker.engine.config import TopicConfig
from esker.engine.logs import forwarding, retention, routing
from esker.engine.priority import effective_priority
from esker.engine.queues import records as queue_records
from esker.engine.queues import retention as queue_retention
from esker.engine.queues.inspect import topic_view
from esker.engine.replies import Done, Reply, TopicDropped, TopicPage, TopicPut, TopicStatus
from esker.engine.topic import Topic
from esker.engine.topics import config_refusal, create_problem, make, not_found
from esker.errors import Code, Refusal, quoted

if TYPE_CHECKING:
    from esker.engine.machine import Machine

_INSERTED_ONE_BY_ONE = 64


class Names:
    """The names of all topics in order, at the cost of one insertion a topic. Many new ones are sorted in together."""

    __slots__ = ("_order", "_young")

    def __init__(self) -> None:
        self._order: list[bytes] = []
        self._young: set[bytes] = set()

    def add(self, name: bytes) -> None:
        self._young.add(name)

    def remove(self, name: bytes) -> None:
        if name in self._young:
            self._young.remove(name)
        else:
            del self._order[bisect_left(self._order, name)]

    def in_order(self) -> list[bytes]:
        """Not to be changed."""
        if len(self._young) > _INSERTED_ONE_BY_ONE:
            self._order += self._young
            self._order.sort()
        else:
            for name in self._young:
                insort(self._order, name)
        self._young = set()
        return self._order


def create(machine: Machine, command: commands.CreateTopic, now: int) -> Reply:
    if command.topic in machine.names:
        return Refusal(Code.TOPIC_EXISTS, f"topic {quoted(command.topic)} exists")
    problem = create_problem(machine, command.topic, command.config)
    if problem is not None:
        return problem
    return topic_view(make(machine, command.topic, command.config, now, lazy=False))


def configure(machine: Machine, command: commands.ConfigureTopic, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    if topic is None:
        return not_found(command.topic)
    problem = config_refusal(topic, command.config)
    if problem is not None:
        return problem
    reconfigure(machine, topic, command.config, now)
    return topic_view(topic)


def reconfigure(machine: Machine, topic: Topic, config: TopicConfig, now: int) -> None:
    """Gives a topic a config that `config_refusal` has nothing against. What it says of retention applies at once."""
    if config == topic.config and not topic.lazy:
        return
    if topic.log is not None:
        retention.expire(machine, topic.log, now)  # what is too old does not come back when the TTL grows
    machine.record(None, events.TopicConfigured(topic.number, now, config))
    if topic.synced:
        machine.release_reserves_of(topic)
    if topic.log is not None:
        machine.reserve(topic.log, 0)
        retention.expire(machine, topic.log, now)
        retention.enforce_caps(machine, topic.log, now)
    else:
        for partition in topic.partitions:
            machine.reserve(partition, 0)
        queue_retention.enforce_caps(machine, topic, now)
    machine.woken.add(topic.name)  # more jobs may be in flight than before


def delete(machine: Machine, command: commands.DeleteTopic, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    if topic is None:
        return not_found(command.topic)
    _remove(machine, topic, now)
    return Done(1)


def delete_all(machine: Machine, command: commands.DeleteAllTopics, now: int) -> Reply:
    topics = list(machine.topics.values())
    for topic in topics:
        _remove(machine, topic, now)
    return Done(len(topics))


def _remove(machine: Machine, topic: Topic, now: int) -> list[bytes]:
    """Returns the names of the routers that went with it."""
    removed = routing.drop_all_of(machine, topic, now)
    machine.record(None, events.TopicDeleted(topic.number, now))
    return removed


def put(machine: Machine, command: commands.PutTopic, now: int) -> Reply:
    """Makes a topic or gives it this config; tightened caps and TTL apply at once."""
    topic, config = machine.names.get(command.topic), command.config
    if topic is None:
        problem = create_problem(machine, command.topic, config)
        if problem is not None:
            return problem
        return TopicPut(True, status(machine, make(machine, command.topic, config, now, lazy=False), now))
    if config.type != topic.config.type:
        return Refusal(
            Code.TOPIC_INCOMPATIBLE,
            f"topic {quoted(topic.name)} is a {topic.config.type} and cannot become a {config.type}",
            {"existing_type": str(topic.config.type), "requested_type": str(config.type)},
        )
    problem = config_refusal(topic, config)
    if problem is not None:
        return problem
    reconfigure(machine, topic, config, now)
    return TopicPut(False, status(machine, topic, now))


def drop(machine: Machine, command: commands.DropTopic, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    if topic is None:
        return TopicDropped(False)
    forwarding.catch_up(machine, topic, now)
    now_there = status(machine, topic, now)
    if command.if_empty and now_there.count:
        return Refusal(
            Code.TOPIC_NOT_EMPTY,
            f"topic {quoted(topic.name)} holds {now_there.count} records",
            {"topic": topic.name, "count": now_there.count},
        )
    return TopicDropped(True, now_there.head_seq, _remove(machine, topic, now))


def state(machine: Machine, command: commands.TopicState, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    if topic is None:
        return not_found(command.topic)
    forwarding.catch_up(machine, topic, now)
    if command.touch:
        topic.last_read_ms = now
    return status(machine, topic, now)


def listing(machine: Machine, command: commands.ListTopics, now: int) -> Reply:
    order = machine.sorted_names.in_order()
    start = bisect_left(order, max(command.prefix, command.after + b"\0" if command.after else b""))
    most = max(1, min(command.count, limits.PAGE_ENTRIES_MAX))
    page: list[TopicStatus] = []
    for name in order[start : start + most + 1]:
        if not name.startswith(command.prefix):
            break
        if len(page) == most:
            return TopicPage(page, more=True)
        topic = machine.names[name]
        if command.touch:
            topic.last_read_ms = now
        forwarding.catch_up(machine, topic, now)
        page.append(status(machine, topic, now))
    return TopicPage(page, more=False)


def status(machine: Machine, topic: Topic, now: int) -> TopicStatus:
    priority = effective_priority(topic.config, topic.last_read_ms, now)
    log = topic.log
    if log is None:
        numbers = queue_records.status(machine, topic, now)
        return TopicStatus(
            topic.name, topic.number, topic.config, numbers.head_seq, numbers.earliest_seq, numbers.count,
            numbers.bytes, priority, topic.active_ms if numbers.head_seq else 0, topic.last_read_ms, numbers.ready,
            numbers.in_flight, numbers.dead_lettered, max(partition.next_seq for partition in topic.partitions),
        )  # fmt: skip
    retention.expire(machine, log, now)
    return TopicStatus(
        topic.name, topic.number, topic.config, log.head_seq, log.earliest_seq(now), log.count, log.bytes, priority,
        log.last_write_ms, topic.last_read_ms, next_seq=log.next_seq,
    )  # fmt: skip

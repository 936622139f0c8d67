"""Writing, reading and deleting records of any topic: a log does it its way (logs/), a queue its own (queues/)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from esker.engine import commands
from esker.engine.config import TopicType
from esker.engine.deletion import Deletion
from esker.engine.logs import append as log_append
from esker.engine.logs import deleting, forwarding, reading
from esker.engine.queues import records as queue_records
from esker.engine.queues import retention
from esker.engine.replies import Deleted, Reply
from esker.engine.topic import Topic
from esker.engine.topics import not_found
from esker.errors import Code, Refusal

if TYPE_CHECKING:
    from esker.engine.machine import Machine


def append(machine: Machine, command: commands.Append, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    config = topic.config if topic is not None else command.config or machine.log_config
    if config.type == TopicType.LOG:
        return log_append.append(machine, command, topic, config, now)
    return queue_records.append(machine, command, now)


def read(machine: Machine, command: commands.Read, now: int) -> Reply:
    """Counts as a consumption of the topic."""
    topic = machine.names.get(command.topic)
    if topic is None:
        return not_found(command.topic)
    forwarding.catch_up(machine, topic, now)
    topic.last_read_ms = now
    if topic.log is None:
        return queue_records.read(machine, command, now)
    return reading.read(machine, topic.log, command, now)


def delete(machine: Machine, command: commands.DeleteRecords, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    if topic is None:
        return not_found(command.topic)
    if command.before_seq is None and command.tag is None:
        return Refusal(Code.BAD_REQUEST, "say what to delete: before_seq, a tag, or both")
    forwarding.catch_up(machine, topic, now)  # what was written to its source before is here before it is deleted
    forwarding.before_loss(machine, topic, now)  # and what was written to it is forwarded: deletes do not propagate
    steps = (
        queue_records.deleting(machine, command, now)
        if topic.log is None
        else deleting.steps(machine, topic.log, command, now)
    )
    return steps if isinstance(steps, Refusal) else _deleted(machine, topic, Deletion(topic.number, steps), now)


def delete_more(machine: Machine, command: commands.DeleteMore, now: int) -> Reply:
    topic = machine.topics.get(command.rest.topic)
    return not_found(command.topic) if topic is None else _deleted(machine, topic, command.rest, now)


def _deleted(machine: Machine, topic: Topic, deletion: Deletion, now: int) -> Deleted:
    rest = deletion if deletion.go_on() else None
    log, count = topic.log, deletion.deleted
    if log is not None:
        return Deleted(count, log.earliest_seq(now), log.head_seq, log.count, log.bytes, rest)
    return Deleted(
        count,
        retention.earliest_seq(topic),
        retention.head_seq(topic),
        sum(partition.records for partition in topic.partitions),
        sum(partition.bytes for partition in topic.partitions),
        rest,
    )

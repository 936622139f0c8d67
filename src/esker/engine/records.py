"""Writing, reading and deleting records of any topic: a log does it its way (logs/), a queue its own (queues/)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from esker.engine import commands
from esker.engine.config import TopicType
from esker.engine.logs import append as log_append
from esker.engine.logs import deleting, forwarding, reading
from esker.engine.queues import records as queue_records
from esker.engine.replies import Reply
from esker.engine.topics import not_found

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
    forwarding.catch_up(machine, topic, now)  # what was written to its source before is here before it is deleted
    forwarding.before_loss(machine, topic, now)  # and what was written to it is forwarded: deletes do not propagate
    if topic.log is None:
        return queue_records.delete(machine, command, now)
    return deleting.delete(machine, topic.log, command, now)

"""Making, changing and removing topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from esker.engine import commands, events, limits
from esker.engine.config import Durability, TopicConfig, config_problem
from esker.engine.queues.inspect import topic_view
from esker.engine.replies import Done, Reply
from esker.engine.topic import Topic
from esker.errors import Code, Refusal

if TYPE_CHECKING:
    from esker.engine.machine import Machine


def create_problem(machine: Machine, name: bytes, config: TopicConfig) -> Refusal | None:
    """Why a topic cannot be made, if so."""
    if not 0 < len(name) <= limits.TOPIC_NAME_BYTES_MAX:
        return Refusal(
            Code.BAD_REQUEST, f"a topic name has 1 to {limits.TOPIC_NAME_BYTES_MAX} bytes, this one has {len(name)}"
        )
    if machine.next_number > limits.TOPIC_NUMBERS_MAX:
        return Refusal(Code.LIMIT_REACHED, f"all {limits.TOPIC_NUMBERS_MAX} topic numbers have been used")
    problem = config_problem(config, name)
    return None if problem is None else Refusal(Code.BAD_REQUEST, problem)


def make(machine: Machine, name: bytes, config: TopicConfig, now: int, lazy: bool) -> Topic:
    """Makes a topic that `create_problem` has nothing against."""
    machine.record_shared(events.TopicCreated(machine.next_number, now, name, config, lazy))
    return machine.names[name]


def create(machine: Machine, command: commands.CreateTopic, now: int) -> Reply:
    if command.topic in machine.names:
        return Refusal(Code.TOPIC_EXISTS, f"topic {command.topic!r} exists")
    problem = create_problem(machine, command.topic, command.config)
    if problem is not None:
        return problem
    return topic_view(make(machine, command.topic, command.config, now, lazy=False))


def configure(machine: Machine, command: commands.ConfigureTopic, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    if topic is None:
        return not_found(command.topic)
    config = command.config
    for field in ("type", "partitions"):
        if getattr(config, field) != getattr(topic.config, field):
            return Refusal(
                Code.BAD_REQUEST, f"{field} of topic {topic.name!r} is {getattr(topic.config, field)} and cannot change"
            )
    problem = config_problem(config, topic.name)
    if problem is None and (config.durability == Durability.EPHEMERAL) == topic.journaled:
        problem = f"durability {topic.config.durability} cannot become {config.durability}; make a new topic"
    if problem is not None:
        return Refusal(Code.BAD_REQUEST, problem)
    if config != topic.config or topic.lazy:
        machine.record_shared(events.TopicConfigured(topic.number, now, config))
        for partition in topic.partitions:
            machine.reserve(partition, 0)
        machine.woken.add(topic.name)  # more jobs may be in flight than before
    return topic_view(topic)


def delete(machine: Machine, command: commands.DeleteTopic, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    if topic is None:
        return not_found(command.topic)
    machine.record_shared(events.TopicDeleted(topic.number, now))
    return Done(1)


def delete_all(machine: Machine, command: commands.DeleteAllTopics, now: int) -> Reply:
    numbers = list(machine.topics)
    for number in numbers:
        machine.record_shared(events.TopicDeleted(number, now))
    return Done(len(numbers))


def not_found(name: bytes) -> Refusal:
    return Refusal(Code.TOPIC_NOT_FOUND, f"no topic {name!r}")

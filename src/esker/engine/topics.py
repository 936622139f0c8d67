"""What making a topic takes, whoever makes it. catalogue.py has the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from esker.engine import events, limits
from esker.engine.config import TopicConfig, config_problem
from esker.engine.queues import pressure
from esker.engine.topic import Topic
from esker.errors import Code, Refusal, quoted

if TYPE_CHECKING:
    from esker.engine.machine import Machine


def create_problem(machine: Machine, name: bytes, config: TopicConfig, others: int = 0) -> Refusal | None:
    """Why a topic cannot be made, if so. `others` are about to be made with it."""
    if not 0 < len(name) <= limits.TOPIC_NAME_BYTES_MAX:
        return Refusal(
            Code.BAD_REQUEST, f"a topic name has 1 to {limits.TOPIC_NAME_BYTES_MAX} bytes, this one has {len(name)}"
        )
    if machine.next_number > limits.TOPIC_NUMBERS_MAX:
        return Refusal(Code.LIMIT_REACHED, f"all {limits.TOPIC_NUMBERS_MAX} topic numbers have been used")
    problem = config_problem(config, name)
    if problem is not None:
        return Refusal(Code.BAD_REQUEST, problem)
    there, most = len(machine.names), machine.topics_max
    if most and there + others >= most:
        return Refusal(
            Code.LIMIT_REACHED,
            f"there are {there} topics; at most {most}: delete some or raise max_topics",
            {"limit": "max_topics", "max": most},
        )
    return pressure.room_problem(machine, machine.last_ms)


def make(machine: Machine, name: bytes, config: TopicConfig, now: int, lazy: bool) -> Topic:
    """Makes a topic that `create_problem` has nothing against."""
    machine.record(None, events.TopicCreated(machine.next_number, now, name, config, lazy))
    return machine.names[name]


def config_refusal(topic: Topic, config: TopicConfig) -> Refusal | None:
    """Why a topic cannot be given a config, if so."""
    for field in ("type", "partitions"):
        if getattr(config, field) != getattr(topic.config, field):
            return Refusal(
                Code.BAD_REQUEST,
                f"{field} of topic {quoted(topic.name)} is {getattr(topic.config, field)} and cannot change",
            )
    problem = config_problem(config, topic.name)
    return None if problem is None else Refusal(Code.BAD_REQUEST, problem)


def not_found(name: bytes) -> Refusal:
    return Refusal(Code.TOPIC_NOT_FOUND, f"no topic {quoted(name)}", {"topic": name})

"""A topic: a name, a config and its partitions. Its number is new each time the name is made again: its epoch."""

from __future__ import annotations

from esker.engine.config import Durability, Pause, TopicConfig, TopicType
from esker.engine.queues.partition import QueuePartition, Totals


class Topic:
    __slots__ = (
        "config", "created_ms", "journaled", "lazy", "name", "number", "partitions", "pause", "synced", "turn",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        name: bytes,
        config: TopicConfig,
        created_ms: int,
        lazy: bool,
        totals: Totals,
        wakes: list[tuple[int, int, int]],
    ) -> None:
        self.number = number
        self.name = name
        self.created_ms = created_ms
        self.lazy = lazy
        self.pause = Pause.NONE
        self.turn = 0  # whose turn it is among the partitions, for jobs without a key
        self.configure(config)
        self.partitions = [QueuePartition(self, index, totals, wakes) for index in range(config.partitions)]

    def configure(self, config: TopicConfig) -> None:
        self.config = config
        self.journaled = config.durability != Durability.EPHEMERAL
        self.synced = config.durability == Durability.FSYNC

    @property
    def is_queue(self) -> bool:
        return self.config.type == TopicType.QUEUE

    def count(self, state: int) -> int:
        return sum(partition.counts[state] for partition in self.partitions)

    @property
    def jobs(self) -> int:
        return sum(len(partition.jobs) for partition in self.partitions)

    @property
    def active_ms(self) -> int:
        return max(partition.active_ms for partition in self.partitions)

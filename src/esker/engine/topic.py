"""A topic: a name, a config and its partitions. Its number is new each time the name is made again: its epoch.

A queue has its `partitions`; a log has none of those but a `log`. So whatever walks the partitions of all topics, for
the sake of jobs, passes logs by.
"""

from __future__ import annotations

from esker.engine import limits
from esker.engine.config import Durability, Pause, TopicConfig, TopicType
from esker.engine.logs.cold import ColdBlocks
from esker.engine.logs.partition import LogPartition
from esker.engine.queues.partition import QueuePartition
from esker.engine.queues.sums import Totals

Partition = QueuePartition | LogPartition


class Topic:
    __slots__ = (
        "config", "created_ms", "journaled", "last_read_ms", "lazy", "log", "name", "number", "partitions", "pause",
        "synced", "turn",
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
        cold: ColdBlocks,
    ) -> None:
        self.number = number
        self.name = name
        self.created_ms = created_ms
        self.lazy = lazy
        self.pause = Pause.NONE
        self.turn = 0  # whose turn it is among the partitions, for jobs without a key
        self.last_read_ms = 0  # when it was last consumed in this life of the process; 0: never
        self.configure(config)
        self.partitions: list[QueuePartition] = []
        self.log: LogPartition | None = None
        if config.type == TopicType.LOG:
            self.log = LogPartition(self, totals, wakes, cold)
        else:
            self.partitions = [QueuePartition(self, index, totals, wakes) for index in range(config.partitions)]
        totals.kept_bytes += self.memory_bytes

    def configure(self, config: TopicConfig) -> None:
        self.config = config
        self.journaled = config.durability != Durability.EPHEMERAL
        self.synced = config.durability == Durability.FSYNC

    @property
    def memory_bytes(self) -> int:
        """What it costs without anything in it."""
        partitions = len(self.partitions) * limits.QUEUE_PARTITION_MEMORY_BYTES or limits.LOG_PARTITION_MEMORY_BYTES
        return limits.TOPIC_MEMORY_BYTES + len(self.name) + partitions

    @property
    def is_queue(self) -> bool:
        return self.config.type == TopicType.QUEUE

    @property
    def first(self) -> Partition:
        """The only partition of a log, or the first one of a queue."""
        return self.partitions[0] if self.log is None else self.log

    def partition(self, index: int) -> Partition:
        return self.partitions[index] if self.log is None else self.log

    def all_partitions(self) -> list[QueuePartition] | list[LogPartition]:
        return self.partitions if self.log is None else [self.log]

    def count(self, state: int) -> int:
        return sum(partition.counts[state] for partition in self.partitions)

    @property
    def jobs(self) -> int:
        return sum(len(partition.jobs) for partition in self.partitions)

    @property
    def active_ms(self) -> int:
        if self.log is not None:
            return self.log.last_write_ms or self.created_ms
        return max(partition.active_ms for partition in self.partitions)

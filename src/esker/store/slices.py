"""The pieces of a checkpoint: each is one write of the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from esker.engine.logs.block import Block
from esker.engine.logs.partition import LogPartition
from esker.engine.queues.job import Job
from esker.engine.queues.partition import QueuePartition

_Item = TypeVar("_Item")

Range = tuple[bytes, bytes]


class Slice(NamedTuple):
    """One write, and the jobs and blocks of which it saves what only memory had."""

    puts: list[tuple[bytes, bytes]]
    deletes: list[bytes]
    ranges: list[Range]
    saved: list[tuple[QueuePartition, Job]]
    blocks: list[tuple[LogPartition, Block, int]] = []  # noqa: RUF012 with the count of records; given wherever it is filled

    marks: list[tuple[LogPartition, int]] = []  # noqa: RUF012 of logs whose marks no event has told, which are saved now


NOTHING = Slice([], [], [], [])
"""A pause between slices: nothing to write, but a chance for others to run."""


class Share(Protocol):
    """What one partition had to save when the checkpoint began."""

    @property
    def header(self) -> tuple[bytes, bytes]:
        """Key and value, as they were at the position of the checkpoint."""

    def ranges(self) -> list[Range]:
        """What is to be removed before anything is written."""

    def slices(self) -> Iterator[Slice]:
        """Each is made when asked for, from the state as it is then, within `WRITE_KEYS` and `WRITE_BYTES`."""


def batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch

"""What has left memory and is read back from the store: payloads of jobs, blocks of logs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from esker.engine.logs.block import Block, Content, Outline
from esker.errors import InvariantBroken

_KEPT = 16  # blocks read last: who reads a log reads on where it stopped, and in small steps


class Pinned(Protocol):
    """The payloads of jobs that were cold at one moment, whatever happened to them since. For any thread."""

    def payloads(self, topic: int, partition: int, seqs: Sequence[int]) -> list[bytes]:
        """Those of some jobs, in that order. Quicker for many in a row than for each alone."""


class Cold(Protocol):
    """Answers with exactly what was saved."""

    def payload(self, topic: int, partition: int, seq: int) -> bytes: ...

    def pin(self) -> Pinned:
        """What is here now. Costs next to nothing, but the store keeps what it lets go of until the pin is dropped."""

    def block(self, topic: int, partition: int, first_seq: int) -> Content: ...

    def outline(self, topic: int, partition: int, first_seq: int) -> Outline | None:
        """Of a block whose records are in the archive; None: they are still here."""


class NothingCold:
    """For a machine without a store, where everything stays in memory."""

    def payloads(self, topic: int, partition: int, seqs: Sequence[int]) -> list[bytes]:
        return [self.payload(topic, partition, seq) for seq in seqs]

    def payload(self, topic: int, partition: int, seq: int) -> bytes:
        raise InvariantBroken(f"payload of job {topic}/{partition}/{seq} is neither in memory nor in a store")

    def pin(self) -> Pinned:
        return self

    def block(self, topic: int, partition: int, first_seq: int) -> Content:
        raise InvariantBroken(f"block {topic}/{partition}/{first_seq} is neither in memory nor in a store")

    def outline(self, topic: int, partition: int, first_seq: int) -> Outline | None:
        return None


class ColdBlocks:
    """Reads blocks back, and remembers the last few."""

    __slots__ = ("_cold", "_recent", "released")

    def __init__(self, cold: Cold) -> None:
        self._cold = cold
        self.released: list[str] = []  # files of the archive that no log mentions any more, for their owner to remove
        self._recent: OrderedDict[tuple[int, int], Content] = OrderedDict()

    def content(self, topic: int, block: Block) -> Content:
        if block.content is not None:
            return block.content
        place = topic, block.first_seq
        content = self._recent.get(place)
        if content is None or len(content.bodies) < block.count:  # it has grown since, was saved again, and cooled
            content = self._reload(topic, block)
            self._recent[place] = content
            if len(self._recent) > _KEPT:
                self._recent.popitem(last=False)
        else:
            self._recent.move_to_end(place)
        return content

    def outline(self, topic: int, block: Block) -> Content | Outline:
        """Of a block that may be in the archive."""
        return self._cold.outline(topic, 0, block.first_seq) or self.content(topic, block)

    def take(self, topic: int, block: Block) -> Content:
        """The content of a cold block, for the caller to change."""
        content = self._reload(topic, block).head(block.count)
        self._recent.pop((topic, block.first_seq), None)
        return content

    def _reload(self, topic: int, block: Block) -> Content:
        """Raises InvariantBroken where the store has fewer records than the block has."""
        content = self._cold.block(topic, 0, block.first_seq)
        if len(content.bodies) < block.count:
            raise InvariantBroken(
                f"block {topic}/{block.first_seq} has {len(content.bodies)} of {block.count} records in the store"
            )
        return content

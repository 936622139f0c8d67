"""What a node has promised about its topics, and whether it kept it after it died.

A promise is an answer that arrived. Data are numbers, each sent once, so a number names a record whatever became of its
answer. What was sent and not answered may be there or not, but not twice and not in parts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from tests.crash.talk import Gap, Record, State


class Keeps(StrEnum):
    """What of the acknowledged records survives a kill."""

    ALL = "all"
    SETTLED = "all but the last moments"
    SOME = "perhaps"
    NONE = "nothing"


@dataclass
class Log:
    """The ledger of one topic."""

    name: str
    keeps: Keeps
    sent: dict[int, int] = field(default_factory=dict)  # number -> the write it was sent in
    sizes: dict[int, int] = field(default_factory=dict)  # write -> how many records it has
    acked: dict[int, int] = field(default_factory=dict)  # seq -> number
    open: dict[int, list[int]] = field(default_factory=dict)  # write -> its numbers, not answered yet
    gone: set[int] = field(default_factory=set)  # numbers whose deletion was acknowledged
    leaving: set[int] = field(default_factory=set)  # numbers whose deletion was asked for
    deleting: bool = False  # and is under way: what is sent meanwhile, on another connection, may be in time for it
    floor: int = 0  # the highest seq acknowledged before the last restart
    settled: set[int] = field(default_factory=set)  # seqs that have survived a kill

    def sends(self, write: int, numbers: list[int]) -> None:
        self.sent.update(dict.fromkeys(numbers, write))
        self.sizes[write] = len(numbers)
        self.open[write] = numbers
        if self.deleting:
            self.leaving.update(numbers)

    def answered(self, write: int, seqs: list[int]) -> None:
        numbers = self.open.pop(write)
        assert seqs == list(range(seqs[0], seqs[0] + len(numbers))), f"{self.name}: seqs of one write: {seqs}"
        for seq, number in zip(seqs, numbers, strict=True):
            assert self.acked.setdefault(seq, number) == number, f"{self.name}: seq {seq} was given out twice"

    def answered_anew(self, write: int, seqs: list[int]) -> None:
        """A write that was never given an answer before now."""
        assert seqs[0] > self.floor, f"{self.name}: {seqs[0]} is not above {self.floor}, acknowledged before the kill"
        self.answered(write, seqs)

    def check(self, found: list[Record], gaps: list[Gap], state: State) -> None:
        """`found` and `gaps` are all that a reader is given after a restart."""
        name = self.name
        seqs = [record.seq for record in found]
        assert seqs == sorted(set(seqs)), f"{name}: seqs do not ascend"
        for record in found:
            assert record.data in self.sent, f"{name}: {record} was never sent"
            held = self.acked.get(record.seq, record.data)
            assert held == record.data, f"{name}: seq {record.seq} was {held}, it now is {record.data}"
        numbers = Counter(record.data for record in found)
        twice = [number for number, count in numbers.items() if count > 1]
        assert not twice, f"{name}: {twice[:5]} are there twice"
        assert state.count == len(found)
        risen = self.gone & numbers.keys()
        assert not risen, f"{name}: {sorted(risen)[:5]} were deleted and are back"
        self._check_losses(set(seqs), gaps, state)
        if not self.leaving:
            self._check_writes_are_whole(numbers)
        self.floor = max(self.acked, default=0)
        self.settled = set(seqs)
        if self.keeps is Keeps.ALL:  # what readers have seen stays
            self.acked.update((record.seq, record.data) for record in found)

    def _check_losses(self, seqs: set[int], gaps: list[Gap], state: State) -> None:
        name = self.name
        lost = {seq for seq, number in self.acked.items() if number not in self.leaving and seq not in seqs}
        match self.keeps:
            case Keeps.ALL:
                assert not lost, f"{name}: {len(lost)} acknowledged records are lost, such as seq {min(lost)}"
                assert not gaps, f"{name}: {gaps} where nothing was lost"
                assert state.next_seq == state.head_seq + 1
                assert state.head_seq >= max(self.acked, default=0), f"{name}: the head fell"
            case Keeps.SETTLED:
                assert not lost & self.settled, f"{name}: what had survived a kill was lost in another"
                recent = {seq for seq in lost if seq > self.floor}
                after = [seq for seq in seqs if recent and seq > min(recent)]
                assert not after, f"{name}: {min(recent)} is lost and the later {after[0]} is not"
            case Keeps.SOME:
                pass
            case Keeps.NONE:
                assert not seqs, f"{name}: its records live in memory only"
        for gap in gaps:
            inside = [seq for seq in seqs if gap.gap_from <= seq <= gap.gap_to]
            assert not inside, f"{name}: {gap} spans records that are there, such as {inside[0]}"

    def _check_writes_are_whole(self, numbers: Counter[int]) -> None:
        parts = Counter(self.sent[number] for number in numbers)
        torn = [write for write, count in parts.items() if count != self.sizes[write]]
        assert not torn, f"{self.name}: writes {torn[:5]} are there in parts"


@dataclass
class Jobs(Log):
    """The ledger of a queue: an ack is a deletion."""

    def claimed(self, seq: int, number: int) -> None:
        assert number in self.sent, f"{self.name}: {number} was never sent"
        assert number not in self.gone, f"{self.name}: {number} was acked and is delivered again"
        assert self.acked.get(seq, number) == number, f"{self.name}: job {seq} has another body"

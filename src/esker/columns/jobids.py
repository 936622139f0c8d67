"""Ids of jobs as texts, many at a time: a segment of the journal names hundreds of thousands.

An id is a ULID of 26 characters of 5 bits (engine/ids.py). Its first 10 are the time alone, its last 3 the low 15 bits
of the seq, and what lies between is the same for 32,768 jobs in a row. So two look-ups and a table make an id.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import product

import numpy as np
from numpy.typing import NDArray

from esker.engine.ids import message_id, to_ulid
from esker.engine.limits import SEQ_BITS

_TIME_CHARACTERS = 10
_LOW_BITS = 15
_LOW = (1 << _LOW_BITS) - 1
_DIGITS = [to_ulid(digit)[-1] for digit in range(32)]
_ENDS = list(map("".join, product(_DIGITS, repeat=3)))
_PAIRS_OF_ID = 13
_PAIR_BITS = 10
_PAIR = (1 << _PAIR_BITS) - 1
_PAIRS = np.frombuffer("".join(map("".join, product(_DIGITS, repeat=2))).encode(), np.uint16)
_TIMES_MAX = 4096  # kept: jobs of one moment follow each other
_JUMP_MAX = 1 << 16  # seqs that nobody got, up to which the array of times is filled up


class _Births:
    """When the jobs of a partition were made: by seq, in the order they came. 0: not known."""

    __slots__ = ("first", "late", "times")

    def __init__(self) -> None:
        self.first = 0
        self.times = array("q")
        self.late: dict[int, int] = {}  # those that came behind younger ones

    def made(self, seq: int, ms: int, count: int) -> None:
        times = self.times
        if not times:
            self.first = seq
        jump = seq - self.first - len(times)
        if 0 <= jump <= _JUMP_MAX:
            if jump:
                times.frombytes(bytes(8 * jump))
            times.extend(array("q", (ms,)) * count)
        else:
            self.late.update(dict.fromkeys(range(seq, seq + count), ms))


class JobIds:
    """Knows when the jobs were made that it was told of."""

    def __init__(self) -> None:
        self._births: dict[tuple[int, int], _Births] = {}
        self._times: dict[int, str] = {}
        self._middles: dict[tuple[int, int, int], str] = {}

    def made(self, topic: int, partition: int, seq: int, ms: int, count: int = 1) -> None:
        births = self._births.get((topic, partition))
        if births is None:
            births = self._births[topic, partition] = _Births()
        births.made(seq, ms, count)

    def of(self, places: Iterable[tuple[int, int, int]]) -> list[str | None]:
        """The ids of jobs by topic, partition and seq; None where it is not known when one was made."""
        found: list[str | None] = []
        add, ends = found.append, _ENDS
        births = _Births()
        times, first, count = births.times, 0, 0
        topic_before = partition_before = high_before = ms_before = -1
        begin = middle = ""
        for topic, partition, seq in places:  # hundreds of thousands: nothing is called here that need not be
            if topic != topic_before or partition != partition_before:
                topic_before, partition_before, high_before = topic, partition, -1
                births = self._births.get((topic, partition)) or _Births()
                times, first, count = births.times, births.first, len(births.times)
            ms = times[seq - first] if 0 <= seq - first < count else 0
            if not ms:
                ms = births.late.get(seq, 0)
                if not ms:
                    add(None)
                    continue
            if ms != ms_before:
                begin, ms_before = self._begin(ms), ms
            if seq >> _LOW_BITS != high_before:
                high_before = seq >> _LOW_BITS
                middle = self._middle((topic, partition, high_before))
            add(begin + middle + ends[seq & _LOW])
        return found

    def run(self, topic: int, partition: int, seq: int, ms: int, count: int) -> list[str]:
        """The ids of jobs in a row, made at one time."""
        ids: list[str] = []
        end = seq + count
        while seq < end:
            low = seq & _LOW
            step = min(end - seq, _LOW + 1 - low)
            begin = self._begin(ms) + self._middle((topic, partition, seq >> _LOW_BITS))
            ids += [begin + last for last in _ENDS[low : low + step]]
            seq += step
        return ids

    def _begin(self, ms: int) -> str:
        known = self._times.get(ms)
        if known is None:
            if len(self._times) >= _TIMES_MAX:
                self._times.clear()
            known = self._times[ms] = to_ulid(message_id(ms, 0, 0, 0))[:_TIME_CHARACTERS]
        return known

    def _middle(self, block: tuple[int, int, int]) -> str:
        known = self._middles.get(block)
        if known is None:
            if len(self._middles) >= _TIMES_MAX:
                self._middles.clear()
            topic, partition, high = block
            whole = to_ulid(message_id(0, topic, partition, high << _LOW_BITS))
            known = self._middles[block] = whole[_TIME_CHARACTERS:-3]
        return known


def joined(topic: int, partition: int, seqs: NDArray[np.int64], made: NDArray[np.int64]) -> bytes:
    """The ids of jobs of a partition, one behind the other; each job, of at least one, was made at its time.

    Two characters at a time. Where they are the same for all, as most are, they are looked up once.
    """
    ids = np.empty((len(seqs), _PAIRS_OF_ID), np.uint16)
    lows = seqs | ((topic & 0xF) << (SEQ_BITS + 10) | partition << SEQ_BITS)  # the last 60 bits
    _write_pairs(ids[:, :5], made)
    ids[:, 5] = _PAIRS[topic >> 14]
    ids[:, 6] = _PAIRS[topic >> 4 & _PAIR]
    _write_pairs(ids[:, 7:], lows)
    return ids.tobytes()


def _write_pairs(into: NDArray[np.uint16], values: NDArray[np.int64]) -> None:
    least, most = int(values.min()), int(values.max())
    for place in range(into.shape[1]):
        shift = _PAIR_BITS * (into.shape[1] - 1 - place)
        if least >> shift == most >> shift:
            into[:, place] = _PAIRS[least >> shift & _PAIR]
        else:
            into[:, place] = _PAIRS[values >> shift & _PAIR]

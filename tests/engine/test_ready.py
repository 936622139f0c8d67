"""The ready heap against a sorted list, garbage included."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.engine import limits
from esker.engine.limits import SEQ_MAX
from esker.engine.queues import ready
from esker.engine.queues.ready import ReadyHeap, ready_key

steps = st.lists(
    st.tuples(st.sampled_from(["push", "take", "leave", "move"]), st.integers(-3, 3), st.integers(1, 30)), max_size=80
)


@given(steps, st.sampled_from([1, -1, 0]))
def test_the_heap_is_the_sorted_list_of_what_is_ready(steps: list[tuple[str, int, int]], sign: int) -> None:
    truth: dict[int, int] = {}
    heap = ReadyHeap(truth.get)
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(ready, "_SLACK", 2)
        for what, priority, seq in steps:
            key = ready_key(sign, priority, seq)
            if (what == "push" and seq not in truth) or (what == "move" and seq in truth):
                truth[seq] = key
                heap.push_all((key,), len(truth))
            elif what == "leave" and seq in truth:
                gone = truth.pop(seq)
                heap.drop(gone, len(truth))
            elif what == "take" and truth:
                first = heap.first()
                assert first == min(truth.values())
                heap.drop(first, len(truth) - 1)
                del truth[first & SEQ_MAX]
            assert heap.first() == min(truth.values(), default=None)
            assert list(heap.in_order()) == sorted(truth.values())
            assert list(islice(heap.in_order(), 2)) == sorted(truth.values())[:2]
            assert len(heap) <= 2 * len(truth) + 2, "more than half is garbage"


@given(st.lists(st.integers(limits.PRIORITY_MIN, limits.PRIORITY_MAX), min_size=2, max_size=2), st.integers(1, SEQ_MAX))
def test_a_key_orders_by_priority_before_seq_and_gives_the_seq_back(priorities: list[int], seq: int) -> None:
    low, high = sorted(priorities)
    for sign, first, second in ((1, low, high), (-1, high, low)):
        assert ready_key(sign, first, seq) & SEQ_MAX == seq
        if low != high:
            assert ready_key(sign, first, SEQ_MAX) < ready_key(sign, second, 1)
    assert ready_key(0, low, seq) == seq


def test_a_loaded_heap_is_in_order() -> None:
    truth = {seq: ready_key(1, -seq, seq) for seq in range(1, 50)}
    heap = ReadyHeap(truth.get)
    heap.load(list(truth.values()))
    assert heap.first() == truth[49]
    assert list(heap.in_order()) == sorted(truth.values())


def test_many_removals_leave_no_mountain_behind() -> None:
    truth: dict[int, int] = {seq: seq for seq in range(1, 20_001)}
    heap = ReadyHeap(truth.get)
    heap.load(list(truth.values()))
    for seq in range(20_000, 0, -1):
        key = truth.pop(seq)
        heap.drop(key, len(truth))
    assert len(heap) <= ready._SLACK

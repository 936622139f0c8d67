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
    st.tuples(st.sampled_from(["push", "take", "take some", "leave", "move"]), st.integers(-3, 3), st.integers(1, 30)),
    max_size=80,
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
            elif what == "take some":
                keys = heap.pop(seq)
                assert keys == sorted(keys)
                wanted = sorted(truth.values())[:2]
                taken = [key for key in dict.fromkeys(keys) if truth.get(key & SEQ_MAX) == key][:2]
                assert taken == wanted[: len(taken)]
                assert len(taken) == len(wanted) or len(keys) == seq, "there were more"
                rest = keys[keys.index(taken[-1]) + 1 :] if taken else []
                for key in taken:
                    del truth[key & SEQ_MAX]
                heap.put_back(rest)
                heap.tidy(len(truth))
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


@pytest.mark.parametrize("step", [-1, 0, 1])
def test_a_loaded_heap_is_in_order(step: int) -> None:
    truth = {seq: ready_key(1, step * seq, seq) for seq in range(1, 50)}
    heap = ReadyHeap(truth.get)
    heap.load(list(truth.values()))
    assert heap.first() == min(truth.values())
    assert list(heap.in_order()) == sorted(truth.values())
    assert heap.pop(100) == sorted(truth.values())


def test_keys_that_rise_are_pushed_in_one_go_wherever_they_belong() -> None:
    truth = {seq: seq for seq in range(1, 31)}
    heap = ReadyHeap(truth.get)
    for first in (11, 21, 1):
        heap.push_run(range(first, first + 10), 30)
    assert list(heap.in_order()) == heap.pop(30) == list(range(1, 31))


def test_many_removals_leave_no_mountain_behind() -> None:
    truth: dict[int, int] = {seq: seq for seq in range(1, 20_001)}
    heap = ReadyHeap(truth.get)
    heap.load(list(truth.values()))
    for seq in range(20_000, 0, -1):
        key = truth.pop(seq)
        heap.drop(key, len(truth))
    assert len(heap) <= ready._SLACK

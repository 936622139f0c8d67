"""Job ids have Disque's shape and name exactly one job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.fronts.resp import jobids
from esker.fronts.resp.errors import CommandError
from esker.fronts.resp.jobids import JobIds

IDS = JobIds("0f0c644f" + "a" * 32)
MINUTE_MS = 60_000


@given(st.integers(1, (1 << 128) - 1), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_an_id_reads_back_as_the_message_id_it_was_written_for(message_id: int, ttl_ms: int, retry_ms: int) -> None:
    written = IDS.write(message_id, ttl_ms, retry_ms)
    assert len(written) == 48
    assert written.startswith(b"DI0f0c644f")
    assert written.endswith(b"SQ")
    assert jobids.read(written) == message_id


@given(st.integers(1, (1 << 127) - 1), st.integers(1, 700), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_replies_made_together_are_those_made_one_by_one(first: int, count: int, ttl_ms: int, retry_ms: int) -> None:
    in_a_row = range(first, first + count)
    one_by_one = [b"+" + IDS.write(message_id, ttl_ms, retry_ms) + b"\r\n" for message_id in in_a_row]
    assert IDS.added(in_a_row, ttl_ms, retry_ms) == one_by_one
    assert IDS.added(list(in_a_row), ttl_ms, retry_ms) == one_by_one


@pytest.mark.parametrize(
    ("ttl_ms", "retry_ms", "digits"),
    [
        (86_400_000, 1, b"05a1"),
        (86_400_000, 0, b"05a0"),
        (59_000, 1, b"0001"),
        (120_000, 1, b"0003"),
        (120_000, 0, b"0002"),
        (0, 1, b"ffff"),
        (0, 0, b"fffe"),
        (70_000 * MINUTE_MS, 1, b"ffff"),
    ],
)
def test_the_last_digits_are_the_ttl_in_minutes_odd_for_retried_jobs(ttl_ms: int, retry_ms: int, digits: bytes) -> None:
    assert IDS.write(1, ttl_ms, retry_ms)[42:46] == digits


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"DI",
        IDS.write(1, 0, 0)[:-1],
        IDS.write(1, 0, 0) + b"x",
        b"XX" + IDS.write(1, 0, 0)[2:],
        IDS.write(1, 0, 0)[:-2] + b"QS",
        b"DI" + b"g" * 44 + b"SQ",
        b"DI" + b" 1" * 22 + b"SQ",
        b"DI" + b"0x" + b"1" * 42 + b"SQ",
        b"D-" + b"x" * 38,
    ],
)
def test_anything_else_is_no_id(wrong: bytes) -> None:
    with pytest.raises(CommandError, match=r"^BADID "):
        jobids.read(wrong)


def test_an_id_of_the_final_disque_is_well_formed_and_unknown() -> None:
    assert jobids.read(b"D-0f0c644f-abcdefghijklmnopqrstuvwx-05a1") == jobids.UNKNOWN


def test_all_ids_are_checked_and_each_counts_once() -> None:
    first, second = IDS.write(7, 0, 1), IDS.write(8, 0, 1)
    assert jobids.read_all([first, second, first]) == [7, 8]
    with pytest.raises(CommandError, match=r"^BADID "):
        jobids.read_all([first, b"nonsense"])
    with pytest.raises(CommandError, match=r"^BADID "):
        jobids.read_all([first, b"DI" + b"xy" * 22 + b"SQ"])

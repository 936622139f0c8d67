"""An id carries its place, sorts by time, and reads as a ULID."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.engine import limits
from esker.engine.ids import from_ulid, message_id, place, to_ulid

places = st.tuples(
    st.integers(0, (1 << 48) - 1), st.integers(0, limits.TOPIC_NUMBERS_MAX), st.integers(0, limits.PARTITIONS_MAX - 1),
    st.integers(0, limits.SEQ_MAX),
)  # fmt: skip


@given(places)
def test_an_id_says_where_it_is_and_survives_its_text(parts: tuple[int, int, int, int]) -> None:
    job_id = message_id(*parts)
    assert job_id < 1 << 128
    assert tuple(place(job_id)) == parts
    assert len(to_ulid(job_id)) == 26
    assert from_ulid(to_ulid(job_id)) == from_ulid(to_ulid(job_id).lower()) == job_id


@given(places, places)
def test_text_and_number_sort_alike_and_time_comes_first(
    one: tuple[int, int, int, int], other: tuple[int, int, int, int]
) -> None:
    first, second = message_id(*one), message_id(*other)
    assert (first < second) == (to_ulid(first) < to_ulid(second)) == (one < other)


@pytest.mark.parametrize(
    "text",
    ["", "0" * 25, "0" * 27, "8" + "0" * 25, "Z" * 26, "0" * 25 + "I", "0" * 25 + "L", "0" * 25 + "O", "0" * 25 + "U",
     "0" * 25 + "ß", "0" * 25 + "ſ", "0" * 25 + " ", "-" + "0" * 25],
)  # fmt: skip
def test_what_is_no_ulid_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="not a ULID") as caught:
        from_ulid(text)
    assert repr(text) in str(caught.value)


def test_the_first_and_the_last_ulid() -> None:
    assert to_ulid(0) == "0" * 26
    assert from_ulid("7" + "Z" * 25) == (1 << 128) - 1

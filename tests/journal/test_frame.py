"""The bytes of the journal: only a whole frame of this life of this file passes as one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.errors import DataDirectoryError
from esker.journal.frame import (
    END,
    FRAME_HEADER_BYTES,
    VERSION,
    Frame,
    SegmentHeader,
    decode_segment_header,
    encode_segment_header,
    frame_header,
    frames_beyond,
    frames_from,
    seal,
    usable_segment_id,
)

segment_ids = st.integers(0, 2**64 - 1).map(usable_segment_id)
positions = st.integers(1, 2**63)
batch_lists = st.lists(st.binary(max_size=60), min_size=1, max_size=6)


def encoded(segment_id: int, first: int, batches: list[bytes]) -> bytes:
    return b"".join(
        frame_header(segment_id, position, first - 1, batch) + batch for position, batch in enumerate(batches, first)
    )


def decoded(data: bytes, segment_id: int, first: int) -> list[bytes]:
    return [frame.batch(data) for frame in frames_from(data, 0, segment_id, first)]


@given(segment_ids, positions, batch_lists, st.binary(max_size=80))
def test_whole_frames_come_back_whatever_follows_them(
    segment_id: int, first: int, batches: list[bytes], garbage: bytes
) -> None:
    data = encoded(segment_id, first, batches)
    assert decoded(data + garbage, segment_id, first) == batches
    assert decoded(data + END, segment_id, first) == batches


@given(segment_ids, positions, st.lists(st.binary(max_size=20), min_size=1, max_size=3), st.booleans())
def test_frames_cut_at_any_byte_give_the_whole_ones_before(
    segment_id: int, first: int, batches: list[bytes], zeros_follow: bool
) -> None:
    data = encoded(segment_id, first, batches)
    ends = [frame.end for frame in frames_from(data, 0, segment_id, first)]
    for cut in range(len(data)):
        torn = data[:cut] + bytes(len(data) - cut if zeros_follow else 0)
        # A frame that ends in zeros is whole again when zeros take the place of its end.
        whole = sum(torn[:end] == data[:end] for end in ends)
        assert decoded(torn, segment_id, first) == batches[:whole]


@given(segment_ids, positions, batch_lists, st.data())
def test_a_flipped_bit_ends_the_walk_at_its_frame(
    segment_id: int, first: int, batches: list[bytes], data: st.DataObject
) -> None:
    good = encoded(segment_id, first, batches)
    bit = data.draw(st.integers(0, 8 * len(good) - 1))
    ends = [frame.end for frame in frames_from(good, 0, segment_id, first)]
    bad = bytearray(good)
    bad[bit // 8] ^= 1 << bit % 8
    before = sum(end <= bit // 8 for end in ends)
    assert decoded(bytes(bad), segment_id, first) == batches[:before]
    # And those behind it are still found by their mark.
    assert [frame.batch(bytes(bad)) for frame in frames_beyond(bytes(bad), 0, segment_id)] == (
        batches[:before] + batches[before + 1 :]
    )


@given(segment_ids, segment_ids, positions, batch_lists)
def test_frames_of_another_segment_never_pass(mine: int, other: int, first: int, batches: list[bytes]) -> None:
    data = encoded(other, first, batches)
    if mine != other:
        assert decoded(data, mine, first) == []
        assert list(frames_beyond(data, 0, mine)) == []


@given(st.binary(max_size=400), segment_ids, positions)
def test_random_bytes_hold_no_frame(data: bytes, segment_id: int, first: int) -> None:
    assert decoded(data, segment_id, first) == []
    assert list(frames_beyond(data, 0, segment_id)) == []


def test_a_frame_at_the_wrong_position_is_not_taken() -> None:
    assert decoded(encoded(7, 5, [b"five"]), 7, 4) == []


def test_a_seal_ends_the_walk_and_is_found_beyond_damage() -> None:
    data = encoded(7, 1, [b"one"]) + seal(7, 1)
    assert decoded(data, 7, 1) == [b"one"]
    end = FRAME_HEADER_BYTES + 3
    assert list(frames_beyond(data, 1, 7)) == [Frame(1, 1, end, end + FRAME_HEADER_BYTES, True)]


@given(segment_ids, positions)
def test_a_segment_header_comes_back(segment_id: int, first: int) -> None:
    header = SegmentHeader(segment_id, first)
    assert decode_segment_header(encode_segment_header(header) + b"rest", "f") == header


@given(segment_ids, positions, st.integers(0, 8 * 40 - 1))
def test_a_damaged_segment_header_is_never_taken_for_good(segment_id: int, first: int, bit: int) -> None:
    data = bytearray(encode_segment_header(SegmentHeader(segment_id, first)))
    data[bit // 8] ^= 1 << bit % 8
    try:
        assert decode_segment_header(bytes(data), "f") is None
    except DataDirectoryError:
        assert struct.unpack_from("<I", data, 8)[0] > VERSION


def test_a_cut_segment_header_is_damaged() -> None:
    data = encode_segment_header(SegmentHeader(7, 1))
    assert all(decode_segment_header(data[:size], "f") is None for size in range(len(data)))


def test_a_newer_format_is_refused_by_name() -> None:
    data = bytearray(encode_segment_header(SegmentHeader(7, 1)))
    struct.pack_into("<I", data, 8, VERSION + 1)
    with pytest.raises(DataDirectoryError, match=f"a.segment has journal format {VERSION + 1}"):
        decode_segment_header(bytes(data), "a.segment")


def test_a_segment_id_never_has_the_mark_of_empty_space() -> None:
    assert usable_segment_id(0xABCD << 32) & 0xFFFF_FFFF
    assert usable_segment_id(0) == 1

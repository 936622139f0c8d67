"""The data of packed records equals what decoding them one by one gives, or is left to that."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.columns import arrow, packed, records
from esker.engine.events import RecordBody
from esker.engine.logs.block import Content, PackedBodies
from esker.store import keys
from esker.store.logs import packed_content, stored_content
from esker.store.memory import MemoryStore

BETWEEN = msgspec.msgpack.encode(RecordBody(b""))[3:] + b"\x95"  # what is between the data of two plain records
LENGTHS = (0, 1, 2, 20, 253, 254, 255, 256, 257, 5000, 65_535)


def pack(bodies: list[RecordBody]) -> PackedBodies:
    return PackedBodies(memoryview(msgspec.msgpack.encode(bodies)))


def data(*packs: list[RecordBody]) -> list[bytes] | None:
    found = packed.data_of([pack(bodies) for bodies in packs])
    if found is None:
        return None
    found.validate(full=True)
    assert found.type == arrow.BYTES
    values: list[bytes] = found.to_pylist()
    return values


@pytest.mark.parametrize("count", [1, 15, 16, 300, 70_000])
def test_a_packed_list_knows_its_count(count: int) -> None:
    bodies = [RecordBody(b"%d" % number) for number in range(count)]
    assert len(pack(bodies)) == count
    assert pack(bodies).unpacked() == bodies


@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS[:7], LENGTHS[7:], LENGTHS[::-1], (300,), (0,), (0, 0, 0)])
def test_plain_records_are_found_whatever_their_lengths(lengths: tuple[int, ...]) -> None:
    bodies = [RecordBody(bytes([65 + at]) * length) for at, length in enumerate(lengths)]
    assert data(bodies, bodies[:1], bodies) == [body.data for body in (*bodies, bodies[0], *bodies)]


def test_records_that_were_all_forwarded_equally_often_are_plain() -> None:
    assert data([RecordBody(b"one", hops=2), RecordBody(b"two", hops=2)]) == [b"one", b"two"]


@pytest.mark.parametrize(
    "other",
    [RecordBody(b"x", tag=b"t"), RecordBody(b"x", node=b"n"), RecordBody(b"x", meta=b"{}"), RecordBody(b"x", hops=1),
     RecordBody(b"x" * 65_536)],
)  # fmt: skip
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_record_with_more_than_data_is_left_to_decoding(other: RecordBody, place: int) -> None:
    bodies = [RecordBody(b"a"), RecordBody(b"b")]
    bodies.insert(place, other)
    assert data(bodies) is None


def test_data_that_looks_like_the_bytes_between_records_deceives_nobody() -> None:
    """The first two have as many separators as two plain records, at other places."""
    inner = b"\xc4\x01y" + BETWEEN + b"\xc4\x01z"
    assert data([RecordBody(b"x" + BETWEEN + b"\xc4\x01z"), RecordBody(b"a", tag=b"t"), RecordBody(b"b")]) is None
    assert data([RecordBody(b"a", tag=b"t"), RecordBody(inner)]) is None
    assert data([RecordBody(inner), RecordBody(b"b", meta=b"{}"), RecordBody(b"c")]) is None


@pytest.mark.parametrize("stamps", [[1_700_000_000_000], [5], [1_700_000_000_000, 1_700_000_000_001]])
def test_a_packed_content_is_the_content_that_was_stored(stamps: list[int]) -> None:
    store = MemoryStore()
    stored = Content(list(range(len(stamps))), stamps, [RecordBody(b"one"), RecordBody(b"two", tag=b"t")])
    store.write([(keys.block_key(b"r", 1, 0, 7), msgspec.msgpack.encode(stored))])
    found = packed_content(store, 1, 0, 7)
    bodies = PackedBodies(memoryview(found.bodies)).unpacked()
    assert Content(found.starts, found.stamps, bodies) == stored_content(store, 1, 0, 7) == stored


PIECES = st.sampled_from([b"", b"a", b"\x95", b"\xc4", b"\xc4\x00", b"\xc4\x01", b"\xc5\x01\x00", BETWEEN, b"x" * 250])
DATA = st.lists(PIECES, max_size=5).map(b"".join)
BODIES = st.builds(RecordBody, DATA, tag=st.sampled_from([b"", b"", b"", b"\x95"]), hops=st.sampled_from([0, 0, 0, 1]))


@given(st.lists(st.lists(BODIES, min_size=1, max_size=20), min_size=1, max_size=4))
def test_whatever_the_data_is_columns_equal_those_of_decoded_records(blocks: list[list[RecordBody]]) -> None:
    schema = records.schema_of(None)
    lives = [(1 << len(bodies)) - 1 >> (number % 2) for number, bodies in enumerate(blocks)]
    packs = [records.Part(n * 256, lives[n], [0], [n], pack(bodies)) for n, bodies in enumerate(blocks)]
    plain = [records.Part(n * 256, lives[n], [0], [n], bodies) for n, bodies in enumerate(blocks)]
    assert records.of_parts(schema, packs).equals(records.of_parts(schema, plain))
    assert records.of_parts(schema, [packs[0], *plain[1:]]).equals(records.of_parts(schema, plain))

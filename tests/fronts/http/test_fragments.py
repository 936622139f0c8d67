"""Texts of records that are kept by block are the same as those made one by one, whatever is cut out of them."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.engine.commands import Append, DeleteRecords, NewRecord, Read
from esker.engine.machine import Machine
from esker.engine.replies import Records
from esker.fronts.http import fragments as module
from esker.fronts.http.fragments import Fragments, Shape, record_text

NOW = 1_700_000_000_000

bodies = st.builds(
    NewRecord,
    data=st.sampled_from([b"1", b'"x"', b'{"a":[1,2]}', b'"' + b"y" * 300 + b'"']),
    tag=st.sampled_from([b"", b"", b"t", 'ä"'.encode()]),
    node=st.sampled_from([b"", b"", b"n"]),
    meta=st.sampled_from([b"", b"", b'{"k":"v"}']),
)
shapes = st.builds(Shape, data=st.booleans(), tags=st.booleans(), meta=st.booleans())


def read(machine: Machine, after: int, limit: int, max_bytes: int, spans: bool) -> Records:
    reply = machine.handle(Read(b"t", after, limit, max_bytes, spans=spans), NOW + 10)
    assert isinstance(reply, Records)
    return reply


@given(
    writes=st.lists(st.tuples(st.lists(bodies, min_size=1, max_size=4), st.integers(1, 90)), min_size=1, max_size=8),
    below=st.integers(0, 300),
    reads=st.lists(
        st.tuples(
            st.integers(0, 1500), st.sampled_from([1, 3, 100, 1000]), st.sampled_from([200, 9000, 1 << 20]), shapes
        ),
        min_size=1,
        max_size=12,
    ),
)
def test_a_page_cut_from_kept_blocks_is_what_its_records_say(
    writes: list[tuple[list[NewRecord], int]],
    below: int,
    reads: list[tuple[int, int, int, Shape]],
) -> None:
    machine = Machine(Random(1))
    fragments = Fragments()
    for number, (some, times) in enumerate(writes):
        machine.handle(Append(b"t", some * times), NOW + number)
        if number == len(writes) // 2:
            machine.handle(DeleteRecords(b"t", tag=b"t"), NOW + number)
            machine.handle(DeleteRecords(b"t", before_seq=below), NOW + number)
        for after, limit, max_bytes, shape in reads:
            one_by_one = read(machine, after, limit, max_bytes, spans=False)
            spans = read(machine, after, limit, max_bytes, spans=True)
            assert spans.spans is not None
            assert (spans.next_from_seq, spans.scanned, spans.tombstone) == (
                one_by_one.next_from_seq, one_by_one.scanned, one_by_one.tombstone,
            )  # fmt: skip
            texts = b"".join(fragments.parts(spans.spans, shape))
            assert texts == b",".join(record_text(record, shape, jobs=False) for record in one_by_one.records)
            json.loads(b"[" + texts + b"]")


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 50_000)
    machine = Machine(Random(1))
    fragments = Fragments()
    machine.handle(Append(b"t", [NewRecord(b'"' + b"x" * 100 + b'"')] * 5000), NOW)
    for after in range(0, 5000, 500):
        page = read(machine, after, 500, 1 << 20, spans=True)
        assert page.spans is not None
        assert len(json.loads(b"[" + b"".join(fragments.parts(page.spans, Shape())) + b"]")) == 500
        assert sum(len(kept.joined) for kept in fragments._blocks.values()) <= 50_000
        assert fragments._size == sum(len(kept.joined) for kept in fragments._blocks.values())

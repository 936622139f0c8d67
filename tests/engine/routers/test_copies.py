"""What a copy looks like: what carries through a forward, and what a router's options change."""

from __future__ import annotations

import json

import pytest

from esker.engine import limits
from esker.engine.commands import NewRecord
from esker.engine.config import Guarantee, RouterOptions
from esker.engine.logs.partition import LogPartition
from tests.engine.routers.routes import Routes

EXACTLY_ONCE = RouterOptions(guarantee=Guarantee.EXACTLY_ONCE)


@pytest.fixture
def rig() -> Routes:
    return Routes()


def log_of(rig: Routes, name: bytes) -> LogPartition:
    log = rig.machine.names[name].log
    assert log is not None
    return log


def stamped_meta(rig: Routes, meta: bytes) -> dict[str, object]:
    rig.route(b"a>b", EXACTLY_ONCE)
    rig.write(b"a", b"1", meta=meta)
    (record,) = rig.records(b"b")
    found = json.loads(record.meta)
    assert isinstance(found, dict)
    return found


def test_node_tag_meta_and_data_carry_through_and_seq_and_time_do_not(rig: Routes) -> None:
    rig.topic(b"a")
    rig.write(b"a", b"0", b"0")
    rig.route(b"a>b")
    rig.write(b"a", b'{"x":1}', tag=b"t", node=b"n", meta=b'{"k":"v"}')
    rig.now += 5
    (original,) = rig.records(b"a")[2:]
    (copy,) = rig.records(b"b")
    assert (copy.data, copy.tag, copy.node, copy.meta) == (b'{"x":1}', b"t", b"n", b'{"k":"v"}')
    assert (original.seq, copy.seq) == (3, 1)
    assert (original.ts, copy.ts) == (rig.now - 5, rig.now)


def test_an_unchanged_copy_is_the_very_same_body_in_memory(rig: Routes) -> None:
    rig.route(b"a>b")
    rig.write(b"a", b"1")
    rig.forward()
    (original,), (copy,) = (log_of(rig, name).bodies([1, 1]) for name in (b"a", b"b"))
    assert original is copy


def test_without_preserve_node_the_copy_has_no_node(rig: Routes) -> None:
    rig.route(b"a>b", RouterOptions(preserve_node=False))
    rig.write(b"a", b"1", tag=b"t", node=b"n")
    (copy,) = rig.records(b"b")
    assert (copy.tag, copy.node) == (b"t", b"")


def test_without_preserve_tag_the_copy_has_no_tag(rig: Routes) -> None:
    rig.route(b"a>b", RouterOptions(preserve_tag=False))
    rig.write(b"a", b"1", tag=b"t", node=b"n")
    (copy,) = rig.records(b"b")
    assert (copy.tag, copy.node) == (b"", b"n")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (RouterOptions(), [b"1", b"2", b"3", b"4"]),
        (RouterOptions(filter_tag=b"red"), [b"1"]),
        (RouterOptions(filter_tag=b"red", filter_prefix=True), [b"1", b"2"]),
        (RouterOptions(filter_tag=b"", filter_prefix=True), [b"1", b"2", b"3"]),
        (RouterOptions(filter_tag=b"green"), []),
    ],
)
def test_a_filter_lets_through_what_has_the_tag(rig: Routes, options: RouterOptions, wanted: list[bytes]) -> None:
    rig.route(b"a>b", options)
    rig.append(
        b"a",
        [NewRecord(b"1", b"red"), NewRecord(b"2", b"redder"), NewRecord(b"3", b"blue"), NewRecord(b"4")],
    )
    assert rig.data(b"b") == wanted
    assert [record.seq for record in rig.records(b"b")] == list(range(1, len(wanted) + 1))
    assert rig.router(b"a>b").forwarded == len(wanted)


# -- exactly once


def test_exactly_once_stamps_where_a_copy_comes_from(rig: Routes) -> None:
    found = stamped_meta(rig, b'{"k":"v"}')
    number = rig.machine.names[b"a"].number
    assert found == {
        "k": "v",
        "_topics_router": {
            "idempotency_key": f"a>b:{number}:{number}:1",
            "router": "a>b",
            "source_topic": "a",
            "source_topic_id": number,
            "source_epoch": number,
            "source_seq": 1,
        },
    }


def test_each_copy_has_its_own_idempotency_key(rig: Routes) -> None:
    rig.route(b"a>b", EXACTLY_ONCE)
    rig.write(b"a", *[b"same"] * 5)
    keys = [json.loads(record.meta)["_topics_router"]["idempotency_key"] for record in rig.records(b"b")]
    assert len(set(keys)) == 5


def test_the_next_exactly_once_router_stamps_anew(rig: Routes) -> None:
    rig.route(b"a>b", EXACTLY_ONCE)
    rig.route(b"b>c", EXACTLY_ONCE)
    rig.write(b"a", b"1")
    (record,) = rig.records(b"c")
    assert json.loads(record.meta)["_topics_router"]["router"] == "b>c"


def test_no_meta_is_room_enough(rig: Routes) -> None:
    assert list(stamped_meta(rig, b"")) == ["_topics_router"]


@pytest.mark.parametrize(
    "meta",
    [
        json.dumps({f"k{n}": "" for n in range(limits.META_KEYS_MAX)}).encode(),
        json.dumps({"k": "x" * (limits.META_BYTES_MAX - 20)}).encode(),
    ],
)
def test_a_full_meta_is_kept_whole_inside(rig: Routes, meta: bytes) -> None:
    found = stamped_meta(rig, meta)
    assert set(found) == {"_topics_original_meta", "_topics_router"}
    assert found["_topics_original_meta"] == json.loads(meta)

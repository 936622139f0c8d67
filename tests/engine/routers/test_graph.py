"""Which routers there may be: the graph, its refusals, and what leaves with a topic."""

from __future__ import annotations

import pytest

from esker.engine.commands import (
    CreateTopic,
    DeleteAllTopics,
    DeleteTopic,
    DropRouter,
    DropTopic,
    ListRouters,
    PutRouter,
    RouterState,
)  # fmt: skip
from esker.engine.config import Durability, Guarantee, RouterOptions, TopicConfig, TopicType
from esker.engine.replies import Done, RouterPage, RouterView, TopicDropped
from esker.errors import Code
from tests.engine.rig import expect
from tests.engine.routers.routes import PLAIN, Routes


@pytest.fixture
def rig() -> Routes:
    return Routes()


def names(rig: Routes, command: ListRouters) -> list[bytes]:
    return [router.name for router in expect(RouterPage, rig.do(command)).routers]


# -- making


def test_a_new_router_makes_missing_topics_as_logs_of_class_disk(rig: Routes) -> None:
    view = rig.route(b"a>b")
    assert (view.created, view.source, view.dest, view.forwarded) == (True, b"a", b"b", 0)
    for name in (b"a", b"b"):
        config = rig.machine.names[name].config
        assert (config.type, config.durability) == (TopicType.LOG, Durability.DISK)


def test_putting_a_router_again_changes_nothing_but_its_options(rig: Routes) -> None:
    rig.route(b"a>b")
    again = rig.route(b"a>b")
    assert not again.created
    assert rig.last == []
    changed = rig.route(b"a>b", RouterOptions(guarantee=Guarantee.EXACTLY_ONCE))
    assert (changed.created, changed.options.guarantee) == (False, Guarantee.EXACTLY_ONCE)


@pytest.mark.parametrize(("source", "dest"), [(b"", b"b"), (b"a", b""), (b"a", b"a")])
def test_a_router_has_two_different_ends(rig: Routes, source: bytes, dest: bytes) -> None:
    assert rig.code(PutRouter(b"r", source, dest, PLAIN)) == Code.BAD_REQUEST
    assert rig.machine.names == {}


def test_a_router_cannot_be_pointed_elsewhere(rig: Routes) -> None:
    rig.route(b"a>b")
    refusal = rig.refused(PutRouter(b"a>b", b"a", b"c", PLAIN))
    assert (refusal.code, refusal.detail) == (Code.TOPIC_INCOMPATIBLE, {"reason": "router_repoint_forbidden"})
    assert b"c" not in rig.machine.names


def test_a_topic_is_fed_from_one_source_only(rig: Routes) -> None:
    rig.route(b"a>c")
    refusal = rig.route_refused(b"b>c")
    assert (refusal.code, refusal.detail) == (Code.TOPIC_INCOMPATIBLE, {"reason": "router_dest_fan_in"})
    assert b"b" not in rig.machine.names, "a refused router makes no topic"


def test_two_routers_of_one_source_may_feed_the_same_topic(rig: Routes) -> None:
    rig.route(b"a>b")
    expect(RouterView, rig.do(PutRouter(b"other", b"a", b"b", PLAIN)))


@pytest.mark.parametrize(
    ("ways", "last", "cycle"),
    [([b"a>b"], b"b>a", [b"b", b"a", b"b"]), ([b"a>b", b"b>c", b"a>x"], b"c>a", [b"c", b"a", b"b", b"c"])],
)
def test_a_cycle_is_refused_with_its_path(rig: Routes, ways: list[bytes], last: bytes, cycle: list[bytes]) -> None:
    for way in ways:
        rig.route(way)
    refusal = rig.route_refused(last)
    assert (refusal.code, refusal.detail) == (Code.ROUTER_CYCLE, {"cycle": cycle})
    assert " -> ".join(f"'{name.decode()}'" for name in cycle) in refusal.message


def test_a_cycle_can_be_allowed_and_not_disallowed_while_it_is_one(rig: Routes) -> None:
    allowed = RouterOptions(allow_cycle=True)
    rig.route(b"a>b")
    rig.route(b"b>a", allowed)
    rig.route(b"a>b")  # as it is: nothing to refuse
    assert rig.route_refused(b"b>a").code == Code.ROUTER_CYCLE
    rig.do(DropRouter(b"a>b"))
    assert not rig.route(b"b>a").options.allow_cycle


def test_without_create_dest_a_missing_dest_is_not_found_and_nothing_is_made(rig: Routes) -> None:
    assert rig.code(PutRouter(b"r", b"a", b"b", PLAIN, create_dest=False)) == Code.TOPIC_NOT_FOUND
    assert rig.machine.names == {}
    rig.topic(b"b")
    expect(RouterView, rig.do(PutRouter(b"r", b"a", b"b", PLAIN, create_dest=False)))


def test_topics_of_many_partitions_have_no_routers(rig: Routes) -> None:
    rig.do(CreateTopic(b"wide", TopicConfig(partitions=3)))
    assert rig.route_refused(b"wide>b").code == Code.BAD_REQUEST
    assert rig.route_refused(b"a>wide").code == Code.BAD_REQUEST
    assert list(rig.machine.names) == [b"wide"]


# -- showing


def test_an_unknown_router_is_not_found(rig: Routes) -> None:
    refusal = rig.refused(RouterState(b"nobody"))
    assert (refusal.code, refusal.detail) == (Code.ROUTER_NOT_FOUND, {"router": b"nobody"})


def test_routers_are_listed_by_name_in_pages(rig: Routes) -> None:
    for way in (b"c>d", b"a>b", b"a>c", b"x>y"):
        rig.route(way)
    assert names(rig, ListRouters()) == [b"a>b", b"a>c", b"c>d", b"x>y"]
    page = expect(RouterPage, rig.do(ListRouters(count=2)))
    assert ([router.name for router in page.routers], page.more) == ([b"a>b", b"a>c"], True)
    page = expect(RouterPage, rig.do(ListRouters(after=b"a>c", count=2)))
    assert ([router.name for router in page.routers], page.more) == ([b"c>d", b"x>y"], False)
    assert names(rig, ListRouters(prefix=b"a>")) == [b"a>b", b"a>c"]
    assert names(rig, ListRouters(prefix=b"a>", after=b"a>b")) == [b"a>c"]
    assert names(rig, ListRouters(source=b"a")) == [b"a>b", b"a>c"]
    assert names(rig, ListRouters(dest=b"c")) == [b"a>c"]
    assert names(rig, ListRouters(source=b"a", dest=b"d")) == []


def test_a_router_shows_what_was_acknowledged_on_its_source_as_forwarded(rig: Routes) -> None:
    rig.route(b"a>b")
    rig.route(b"b>c")
    rig.write(b"a", b"1", b"2", b"3")
    assert rig.router(b"b>c").forwarded == 3
    rig.write(b"a", b"4")
    page = expect(RouterPage, rig.do(ListRouters()))
    assert [(router.name, router.forwarded) for router in page.routers] == [(b"a>b", 4), (b"b>c", 4)]


# -- leaving


def test_a_dropped_router_forwards_no_more_and_its_copies_stay(rig: Routes) -> None:
    rig.route(b"a>b")
    rig.write(b"a", b"1")
    assert expect(Done, rig.do(DropRouter(b"a>b"))).count == 1
    assert expect(Done, rig.do(DropRouter(b"a>b"))).count == 0
    rig.write(b"a", b"2")
    assert rig.data(b"b") == [b"1"]
    assert names(rig, ListRouters()) == []


def test_a_topic_takes_the_routers_at_its_ends_along(rig: Routes) -> None:
    for way in (b"a>b", b"b>c", b"b>d", b"d>e"):
        rig.route(way)
    dropped = expect(TopicDropped, rig.do(DropTopic(b"b")))
    assert list(dropped.routers_removed) == [b"a>b", b"b>c", b"b>d"]
    assert names(rig, ListRouters()) == [b"d>e"]


def test_what_was_written_before_its_source_left_is_still_copied(rig: Routes) -> None:
    rig.route(b"a>b")
    rig.write(b"a", b"1", b"2")
    rig.do(DropTopic(b"a"))
    assert rig.data(b"b") == [b"1", b"2"]


@pytest.mark.parametrize("command", [DeleteTopic(b"a"), DeleteTopic(b"b"), DeleteAllTopics()])
def test_however_a_topic_leaves_its_routers_leave_too(rig: Routes, command: DeleteTopic | DeleteAllTopics) -> None:
    rig.route(b"a>b")
    rig.do(command)
    assert names(rig, ListRouters()) == []
    rig.write(b"a", b"1")
    rig.route(b"a>b")
    rig.write(b"a", b"2")
    assert rig.data(b"b")[-1:] == [b"2"]


@pytest.mark.parametrize("way", [b"q>log", b"log>q"])
def test_an_idle_queue_that_a_router_touches_stays(rig: Routes, way: bytes) -> None:
    rig.add(b"job", topic=b"q")
    rig.ack(rig.lease_one(b"q"))
    rig.route(way)
    rig.pass_ms(10 * 60_000)
    assert b"q" in rig.machine.names
    rig.do(DropRouter(way))
    rig.pass_ms(10 * 60_000)
    assert b"q" not in rig.machine.names

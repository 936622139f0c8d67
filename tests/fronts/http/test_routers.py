"""Routers over HTTP: made, shown, filtered, refused."""

from __future__ import annotations

import pytest

from tests.fronts.http.web import Web, listed


def _put(web: Web, name: str, source: str, dest: str, status: int = 201, **fields: object) -> dict[str, object]:
    return web.ask("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest, **fields}, status)


def test_what_is_written_to_the_source_is_read_at_the_dest_at_once(web: Web, topic: str) -> None:
    answer = _put(web, f"{topic}->b", topic, f"{topic}.b")
    del answer["performance"]
    assert answer == {
        "router": f"{topic}->b", "created": True, "source": topic, "dest": f"{topic}.b", "preserve_node": True,
        "preserve_tag": True, "filter": None, "allow_cycle": False, "guarantee": "at_least_once",
    }  # fmt: skip
    web.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": 1, "node": "n", "tag": "t", "meta": {"k": "v"}}]})
    (copy,) = listed(web.diff(f"{topic}.b", include_tags=True), "records")
    assert (copy["data"], copy["$node"], copy["$tag"], copy["meta"]) == (1, "n", "t", {"k": "v"})
    shown = web.ask("GET", f"/v0/routers/{topic}-%3Eb")
    assert shown["forwarded_total"] == 1
    assert "created" not in shown


def test_a_router_copies_only_what_its_filter_lets_through(web: Web, topic: str) -> None:
    _put(web, f"{topic}.r", topic, f"{topic}.b", filter=["tag", "Glob", "ok:*"], preserve_tag=False)
    assert web.ask("GET", f"/v0/routers/{topic}.r")["filter"] == ["tag", "Glob", "ok:*"]
    records = [{"data": 1, "tag": "ok:1"}, {"data": 2, "tag": "no"}, {"data": 3}]
    web.ask("POST", f"/v0/topics/{topic}", {"records": records})
    (copy,) = listed(web.diff(f"{topic}.b", include_tags=True), "records")
    assert copy["data"] == 1
    assert "$tag" not in copy


def test_exactly_once_stamps_its_copies(web: Web, topic: str) -> None:
    _put(web, f"{topic}.r", topic, f"{topic}.b", guarantee="exactly_once")
    web.write(topic, 1)
    (copy,) = listed(web.diff(f"{topic}.b"), "records")
    meta = copy["meta"]
    assert isinstance(meta, dict)
    stamp = meta["_topics_router"]
    assert isinstance(stamp, dict)
    assert (stamp["router"], stamp["source_topic"], stamp["source_seq"]) == (f"{topic}.r", topic, 1)


def test_the_same_router_again_is_no_new_one_and_options_can_change(web: Web, topic: str) -> None:
    _put(web, f"{topic}.r", topic, f"{topic}.b")
    assert _put(web, f"{topic}.r", topic, f"{topic}.b", status=200)["created"] is False
    assert _put(web, f"{topic}.r", topic, f"{topic}.b", status=200, preserve_node=False)["preserve_node"] is False


@pytest.mark.parametrize(
    "body",
    [
        {}, {"source": "a"}, {"dest": "a"}, {"source": "a", "dest": "a"}, {"source": "a b", "dest": "c"},
        {"source": "a", "dest": "b", "guarantee": "maybe"}, {"source": "a", "dest": "b", "filter": ["tag"]},
        {"source": "a", "dest": "b", "allow_cycle": "yes"}, {"source": 1, "dest": "b"},
    ],
)  # fmt: skip
def test_a_router_that_makes_no_sense_is_refused(one: Web, topic: str, body: dict[str, object]) -> None:
    assert one.refused("PUT", f"/v0/routers/{topic}", body, status=400).code == "invalid_request"
    refused = one.refused("GET", f"/v0/routers/{topic}", status=404)
    assert (refused.code, refused.detail) == ("router_not_found", {"router": topic})


def test_refusals_of_the_graph(web: Web, topic: str) -> None:
    a, b, c = (f"{topic}.{letter}" for letter in "abc")
    missing = web.refused(
        "PUT", f"/v0/routers/{topic}", {"source": a, "dest": b, "create_dest": False}, status=404
    )  # fmt: skip
    assert (missing.code, missing.detail) == ("topic_not_found", {"topic": b})
    _put(web, f"{a}->{b}", a, b)
    cycle = web.refused("PUT", f"/v0/routers/{b}->{a}", {"source": b, "dest": a}, status=409)
    assert (cycle.code, cycle.detail) == ("router_cycle", {"cycle": [b, a, b]})
    fan_in = web.refused("PUT", f"/v0/routers/{c}->{b}", {"source": c, "dest": b}, status=409)
    assert (fan_in.code, fan_in.detail) == ("topic_exists_incompatible", {"reason": "router_dest_fan_in"})
    turned = web.refused("PUT", f"/v0/routers/{a}->{b}", {"source": a, "dest": c}, status=409)
    assert (turned.code, turned.detail) == ("topic_exists_incompatible", {"reason": "router_repoint_forbidden"})
    web.refused("GET", f"/v0/topics/{c}", status=404)
    _put(web, f"{b}->{a}", b, a, allow_cycle=True)


def test_routers_are_listed_by_name_and_by_their_ends(web: Web, topic: str) -> None:
    for number in range(3):
        _put(web, f"{topic}.r{number}", topic, f"{topic}.{number}")
    page = web.ask("GET", f"/v0/routers?prefix={topic}.&page_size=2")
    assert [entry["router"] for entry in listed(page, "routers")] == [f"{topic}.r0", f"{topic}.r1"]
    assert listed(page, "routers")[0].keys() == {"router", "source", "dest", "guarantee", "forwarded_total"}
    rest = web.ask("GET", f"/v0/routers?prefix={topic}.&page_size=2&cursor={page['next_cursor']}")
    assert [entry["router"] for entry in listed(rest, "routers")] == [f"{topic}.r2"]
    assert "next_cursor" not in rest
    assert len(listed(web.ask("GET", f"/v0/routers?source={topic}"), "routers")) == 3
    (found,) = listed(web.ask("GET", f"/v0/routers?dest={topic}.1"), "routers")
    assert found["router"] == f"{topic}.r1"


def test_a_router_can_be_dropped_again_and_again(web: Web, topic: str) -> None:
    _put(web, f"{topic}->b", topic, f"{topic}.b")
    web.write(topic, 1)
    assert web.ask("DELETE", f"/v0/routers/{topic}->b")["deleted"] is True
    assert web.ask("DELETE", f"/v0/routers/{topic}->b")["deleted"] is False
    web.write(topic, 2)
    assert len(listed(web.diff(f"{topic}.b"), "records")) == 1

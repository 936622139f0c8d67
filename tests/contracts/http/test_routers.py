"""Routers: their answers, their refusals, what they carry, and that readers of a destination need not wait."""

from __future__ import annotations

import socket

import pytest

from tests.contracts.http.api import Api, data, eventually, part, rows, seqs, timed, whole
from tests.contracts.http.shapes import INT, PERFORMANCE, TEXT, Rule, check, record

IDENTITY = Rule("a number or text", lambda value: isinstance(value, int | str))


def _fields(name: str, source: str, dest: str, **changed: object) -> dict[str, object]:
    return {
        "router": name, "source": source, "dest": dest, "preserve_node": True, "preserve_tag": True, "filter": None,
        "allow_cycle": False, "guarantee": "at_least_once", "performance": PERFORMANCE, **changed,
    }  # fmt: skip


def test_a_router_is_made_and_told_with_exactly_the_agreed_fields(api: Api, topic: str) -> None:
    source, dest = f"{topic}.a", f"{topic}.b"
    check(api.router(topic, source, dest), _fields(topic, source, dest, created=True))
    check(api.router(topic, source, dest, 200), _fields(topic, source, dest, created=False))
    check(api.ask("GET", f"/routers/{topic}"), _fields(topic, source, dest, forwarded_total=0))


def test_options_of_a_router_are_echoed_and_may_change(api: Api, topic: str) -> None:
    source, dest = f"{topic}.a", f"{topic}.b"
    options: dict[str, object] = {
        "preserve_node": False, "preserve_tag": False, "filter": ["tag", "Glob", "x*"], "guarantee": "exactly_once",
        "allow_cycle": True,
    }  # fmt: skip
    check(api.router(topic, source, dest, **options), _fields(topic, source, dest, created=True, **options))
    check(api.router(topic, source, dest, 200), _fields(topic, source, dest, created=False))


def test_the_destination_shows_at_once_what_the_source_has_acknowledged(api: Api, topic: str) -> None:
    source, dest = f"{topic}.a", f"{topic}.b"
    api.write(source, "before", status=201)
    api.router(topic, source, dest)
    for number in range(20):
        api.write(source, number)
        assert data(api.diff(dest)) == list(range(number + 1))
        assert api.ask("GET", f"/routers/{topic}")["forwarded_total"] == number + 1
        assert api.state(dest)["head_seq"] == number + 1


def test_a_chain_shows_its_records_at_once_at_its_end(api: Api, topic: str) -> None:
    for number in range(4):
        api.router(f"{topic}.{number}", f"{topic}.t{number}", f"{topic}.t{number + 1}")
    api.write(f"{topic}.t0", "x")
    assert data(api.diff(f"{topic}.t4")) == ["x"]
    check(api.state(f"{topic}.t2")["head_seq"], 1)


def test_copies_keep_node_tag_meta_and_data_and_get_new_seqs(api: Api, topic: str) -> None:
    source, dest = f"{topic}.a", f"{topic}.b"
    api.write(dest, "own", status=201)
    api.router(topic, source, dest)
    api.post(source, {"data": {"x": 1}, "node": "n", "tag": "t", "meta": {"k": "v"}})
    wanted = [record(1, "own"), record(2, {"x": 1}, node="n", tag="t", meta={"k": "v"})]
    check(rows(api.diff(dest, include_tags=True), "records"), wanted)
    assert seqs(api.diff(dest, node="n")) == [1]


def test_node_and_tag_are_dropped_on_request(api: Api, topic: str) -> None:
    source, dest = f"{topic}.a", f"{topic}.b"
    api.router(topic, source, dest, preserve_node=False, preserve_tag=False)
    api.post(source, {"data": 1, "node": "n", "tag": "t", "meta": {"k": "v"}})
    check(rows(api.diff(dest, include_tags=True), "records"), [record(1, 1, meta={"k": "v"})])


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["tag", "Eq", "a"], ["a"]),
        ("a", ["a"]),
        (["tag", "Glob", "a*"], ["a", "ab"]),
        ("a*", ["a", "ab"]),
        (None, ["a", "ab", "b", None]),
    ],
)
def test_a_filter_lets_only_its_tags_through(api: Api, topic: str, given: object, passed: list[object]) -> None:
    source, dest = f"{topic}.a", f"{topic}.b"
    api.router(topic, source, dest, filter=given)
    api.post(source, {"data": "a", "tag": "a"}, {"data": "ab", "tag": "ab"}, {"data": "b", "tag": "b"}, {"data": None})
    assert data(api.diff(dest)) == passed
    assert api.ask("GET", f"/routers/{topic}")["forwarded_total"] == len(passed)


def test_exactly_once_stamps_the_origin_of_each_copy(api: Api, topic: str) -> None:
    source, dest = f"{topic}.a", f"{topic}.b"
    api.router(topic, source, dest, guarantee="exactly_once")
    api.post(source, {"data": 1, "meta": {"k": "v"}}, {"data": 2})
    first, second = rows(api.diff(dest), "records")
    identity = {
        "idempotency_key": TEXT, "router": topic, "source_topic": source, "source_topic_id": IDENTITY,
        "source_epoch": INT, "source_seq": 1,
    }  # fmt: skip
    check(first["meta"], {"k": "v", "_topics_router": identity})
    check(second["meta"], {"_topics_router": {**identity, "source_seq": 2}})
    keys = {part(part(one, "meta"), "_topics_router")["idempotency_key"] for one in (first, second)}
    assert len(keys) == 2


def test_a_meta_that_is_full_is_nested_under_its_original_name(api: Api, topic: str) -> None:
    source, dest = f"{topic}.a", f"{topic}.b"
    api.router(topic, source, dest, guarantee="exactly_once")
    full = {str(number): "v" for number in range(64)}
    api.post(source, {"data": 1, "meta": full})
    (copy,) = rows(api.diff(dest), "records")
    meta = part(copy, "meta")
    assert meta.keys() == {"_topics_router", "_topics_original_meta"}
    assert meta["_topics_original_meta"] == full


@pytest.mark.parametrize("name", ["{0}->b", "{0}-%3Eb"])
def test_an_arrow_in_a_name_may_be_percent_encoded_by_the_client(api: Api, topic: str, name: str) -> None:
    plain = f"{topic}->b"
    assert api.router(name.format(topic), f"{topic}.a", f"{topic}.b")["router"] == plain
    api.write(f"{topic}.a", 1)
    assert whole(api.ask("GET", f"/routers/{name.format(topic)}"), "forwarded_total") >= 1
    answer = timed(api.ask("DELETE", f"/routers/{name.format(topic)}"))
    check(answer, {"router": plain, "deleted": True})


def test_a_deleted_router_forwards_no_more_and_its_copies_stay(api: Api, topic: str) -> None:
    source, dest = f"{topic}.a", f"{topic}.b"
    api.router(topic, source, dest)
    api.write(source, 1)
    wanted = {"router": topic, "deleted": True, "performance": PERFORMANCE}
    check(api.ask("DELETE", f"/routers/{topic}"), wanted)
    check(api.ask("DELETE", f"/routers/{topic}"), {**wanted, "deleted": False})
    api.write(source, 2)
    assert data(api.diff(dest)) == [1]
    api.refused("GET", f"/routers/{topic}", status=404, code="router_not_found", detail={"router": topic})


def test_the_list_is_filtered_sorted_and_paged(api: Api, topic: str) -> None:
    for end in ("c", "a", "b"):
        api.router(f"{topic}.r{end}", f"{topic}.source", f"{topic}.{end}", guarantee="exactly_once")
    api.write(f"{topic}.source", 1)
    wanted = [
        {
            "router": f"{topic}.r{end}", "source": f"{topic}.source", "dest": f"{topic}.{end}",
            "guarantee": "exactly_once", "forwarded_total": 1,
        }
        for end in ("a", "b", "c")
    ]  # fmt: skip
    for query in (f"prefix={topic}.", f"source={topic}.source"):
        check(api.ask("GET", f"/routers?{query}"), {"routers": wanted, "performance": PERFORMANCE})
    check(api.ask("GET", f"/routers?dest={topic}.b"), {"routers": wanted[1:2], "performance": PERFORMANCE})
    page = api.ask("GET", f"/routers?prefix={topic}.&page_size=2")
    check(page["routers"], wanted[:2])
    rest = api.ask("GET", f"/routers?prefix={topic}.&page_size=2&cursor={page['next_cursor']}")
    check(timed(rest), {"routers": wanted[2:]})


@pytest.mark.parametrize(
    "body",
    [
        {"dest": "b"},
        {"source": "a"},
        {"source": "same", "dest": "same"},
        {"source": "-bad", "dest": "b"},
        {"source": "a", "dest": "b c"},
        {"source": "a", "dest": "b", "guarantee": "twice"},
        {"source": "a", "dest": "b", "filter": ["tag", "Glob", "x"]},
        {"source": "a", "dest": "b", "filter": 5},
        [],
    ],
)
def test_a_router_that_makes_no_sense_is_refused(api: Api, topic: str, body: object) -> None:
    api.refused("PUT", f"/routers/{topic}", body, status=400, code="invalid_request")
    api.refused("GET", f"/routers/{topic}", status=404, code="router_not_found")


def test_a_missing_destination_is_not_made_when_that_is_declined(api: Api, topic: str) -> None:
    body = {"source": f"{topic}.a", "dest": f"{topic}.b", "create_dest": False}
    detail = {"topic": f"{topic}.b"}
    api.refused("PUT", f"/routers/{topic}", body, status=404, code="topic_not_found", detail=detail)
    api.refused("GET", f"/topics/{topic}.b", status=404, code="topic_not_found")
    api.put(f"{topic}.b")
    assert api.ask("PUT", f"/routers/{topic}", body, 201)["created"] is True


def test_a_cycle_is_refused_with_its_path(api: Api, topic: str) -> None:
    a, b, c = f"{topic}.a", f"{topic}.b", f"{topic}.c"
    api.router(f"{topic}.1", a, b)
    api.router(f"{topic}.2", b, c)
    detail = api.refused("PUT", f"/routers/{topic}.3", {"source": c, "dest": a}, status=409, code="router_cycle")
    check(detail, {"cycle": [c, a, b, c]})


def test_an_allowed_cycle_forwards_a_record_a_bounded_number_of_times(api: Api, topic: str) -> None:
    a, b = f"{topic}.a", f"{topic}.b"
    api.router(f"{topic}.1", a, b, allow_cycle=True)
    api.router(f"{topic}.2", b, a, allow_cycle=True)
    api.write(a, "round")
    heads = whole(api.state(a), "head_seq") + whole(api.state(b), "head_seq")
    assert 3 <= heads <= 9
    assert whole(api.state(a), "head_seq") + whole(api.state(b), "head_seq") == heads


def test_a_second_source_into_one_destination_is_refused(api: Api, topic: str) -> None:
    api.router(f"{topic}.1", f"{topic}.a", f"{topic}.dest")
    detail = api.refused(
        "PUT", f"/routers/{topic}.2", {"source": f"{topic}.b", "dest": f"{topic}.dest"}, status=409,
        code="topic_exists_incompatible",
    )  # fmt: skip
    assert detail["reason"] == "router_dest_fan_in"


def test_a_router_cannot_be_pointed_elsewhere(api: Api, topic: str) -> None:
    api.router(topic, f"{topic}.a", f"{topic}.b")
    for source, dest in ((f"{topic}.x", f"{topic}.b"), (f"{topic}.a", f"{topic}.x")):
        detail = api.refused(
            "PUT", f"/routers/{topic}", {"source": source, "dest": dest}, status=409, code="topic_exists_incompatible"
        )
        assert detail["reason"] == "router_repoint_forbidden"


def test_a_full_destination_stalls_its_router_and_a_trimmed_source_is_told_there(api: Api, topic: str) -> None:
    source, dest = f"{topic}.a", f"{topic}.b"
    api.put(source, cap_records=3)
    api.put(dest, cap_records=2, discard="reject")
    api.router(topic, source, dest)
    api.write(source, 1)
    api.write(source, 2)
    assert data(api.diff(dest)) == [1, 2]
    for number in range(3, 9):
        api.write(source, number)
    assert data(api.diff(dest)) == [1, 2]  # 3, 4 and 5 have left the source meanwhile
    api.delete(dest, before_seq=3)
    found: list[object] = []
    reasons: list[object] = []
    cursor = 2

    def drained() -> bool:
        nonlocal cursor
        page = api.diff(dest, cursor)
        cursor = whole(page, "next_from_seq")
        found.extend(data(page))
        if page["tombstone"] is not None:
            reasons.append(part(page, "tombstone")["reason"])
        api.delete(dest, before_seq=cursor + 1)
        return 8 in found

    eventually(drained)
    assert found == [6, 7, 8]
    assert reasons == ["source_trim"]


def test_a_router_into_a_queue_makes_jobs(api: Api, topic: str) -> None:
    source, queue = f"{topic}.a", f"{topic}.q"
    api.put(queue, type="queue")
    api.router(topic, source, queue)
    api.write(source, "job")
    assert [job["data"] for job in api.claim(queue, "w")] == ["job"]


def test_a_router_out_of_a_queue_copies_its_jobs(api: Api, topic: str) -> None:
    queue, dest = f"{topic}.q", f"{topic}.b"
    api.put(queue, type="queue")
    api.router(topic, queue, dest)
    api.write(queue, "job")
    assert data(api.diff(dest)) == ["job"]


def test_an_arrow_in_a_name_may_come_unencoded_over_the_wire(one: Api, topic: str) -> None:
    body = f'{{"source":"{topic}.a","dest":"{topic}.b"}}'
    head = (
        f"PUT /v0/routers/{topic}->b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", one.port), timeout=10) as raw:
        raw.sendall((head + body).encode())
        answer = raw.makefile("rb").read().decode()
    assert answer.startswith("HTTP/1.1 201 ")

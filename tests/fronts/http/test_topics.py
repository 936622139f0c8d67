"""Topics over HTTP: made, changed, shown, listed, removed."""

from __future__ import annotations

import time

import pytest
import redis

from esker.testing.broker import Broker
from tests.fronts.http.web import Web, listed, part

DEFAULTS = {
    "type": "log", "ttl_ms": 0, "cap_records": 0, "cap_bytes": 0, "discard": "old", "durable": False,
    "durability": "disk", "priority": None, "auto_priority": True, "auto_create": True,
    "idempotency_window_ms": 120_000, "dedupe_node": True, "lease_ms": 30_000, "claim_jitter_ms": 0,
    "max_deliveries": 0, "dead_letter": None, "leases_durable": False,
}  # fmt: skip


def test_a_put_without_a_body_makes_a_log_with_the_defaults(web: Web, topic: str) -> None:
    response = web.client.put(f"/v0/topics/{topic}")
    assert response.status_code == 201
    answer = response.json()
    assert (answer["topic"], answer["created"]) == (topic, True)
    assert answer["config"] == DEFAULTS


def test_the_same_put_again_changes_nothing_and_says_so(web: Web, topic: str) -> None:
    web.put(topic, ttl_ms=5000)
    answer = web.put(topic, status=200, ttl_ms=5000)
    assert answer["created"] is False
    assert part(answer, "config") == {**DEFAULTS, "ttl_ms": 5000}


def test_a_put_replaces_the_whole_config(web: Web, topic: str) -> None:
    web.put(topic, ttl_ms=5000, cap_records=7)
    assert part(web.put(topic, status=200, cap_bytes=9), "config") == {**DEFAULTS, "cap_bytes": 9}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"durable": True}, {"durable": True, "durability": "fsync"}),
        ({"durable": True, "durability": "memory"}, {"durable": False, "durability": "memory"}),
        ({"durability": "fsync"}, {"durable": True, "durability": "fsync"}),
        ({"durability": "ephemeral"}, {"durable": False, "durability": "ephemeral"}),
        ({"lease_ms": 1}, {"lease_ms": 100}),
        ({"lease_ms": 10**12}, {"lease_ms": 86_400_000}),
        ({"claim_jitter_ms": 9999}, {"claim_jitter_ms": 5000}),
        ({"priority": -5000}, {"priority": -5000}),
        ({"priority": None}, {"priority": None}),
        ({"type": "queue", "dead_letter": "dead", "max_deliveries": 3}, {"dead_letter": "dead", "max_deliveries": 3}),
        ({"nobody": "knows this field"}, {}),
    ],
)
def test_a_config_is_echoed_in_full_with_its_bounds(
    one: Web, topic: str, given: dict[str, object], shown: dict[str, object]
) -> None:
    config = part(one.ask("PUT", f"/v0/topics/{topic}", given, 201), "config")
    assert config.keys() == DEFAULTS.keys()
    assert {name: config[name] for name in shown} == shown


@pytest.mark.parametrize(
    "config",
    [
        {"type": "kv"}, {"ttl_ms": -1}, {"ttl_ms": "5"}, {"ttl_ms": 1.5}, {"ttl_ms": None}, {"discard": "new"},
        {"durability": "eternal"}, {"durable": 1}, {"priority": 1 << 31}, {"dead_letter": ""}, {"dead_letter": "a b"},
        {"dead_letter": 5},
    ],
)  # fmt: skip
def test_a_bad_config_is_refused_by_field(one: Web, topic: str, config: dict[str, object]) -> None:
    refused = one.refused("PUT", f"/v0/topics/{topic}", config, status=400)
    assert refused.code == "invalid_request"
    assert next(iter(config)) in str(refused.message)
    one.refused("GET", f"/v0/topics/{topic}", status=404)


def test_a_topic_cannot_be_its_own_dead_letter(one: Web, topic: str) -> None:
    assert one.refused("PUT", f"/v0/topics/{topic}", {"dead_letter": topic}, status=400).code == "invalid_request"


def test_a_topic_never_changes_its_type(one: Web, topic: str) -> None:
    one.put(topic, type="queue")
    refused = one.refused("PUT", f"/v0/topics/{topic}", {"type": "log"}, status=409)
    assert refused.code == "topic_exists_incompatible"
    assert refused.detail == {"existing_type": "queue", "requested_type": "log"}
    assert part(one.put(topic, status=200, ttl_ms=1), "config")["type"] == "queue", "left out, it stays"


def test_what_this_protocol_cannot_name_keeps_its_value(one: Web, shared_broker: Broker, topic: str) -> None:
    with redis.Redis(port=shared_broker.resp_port, protocol=2) as client:
        client.execute_command("TOPIC", "CREATE", topic, "mode", "max", "max_in_flight", "7")
        one.put(topic, status=200, ttl_ms=9)
        told = dict(zip(*[iter(client.execute_command("TOPIC", "CONFIG", topic))] * 2, strict=True))
    assert (told[b"mode"], told[b"max_in_flight"], told[b"ttl_ms"]) == (b"max", b"7", b"9")


def test_an_empty_topic_begins_at_one(web: Web, topic: str) -> None:
    web.put(topic)
    state = web.state(topic)
    assert (state["head_seq"], state["next_seq"], state["earliest_seq"]) == (0, 1, 1)
    assert (state["count"], state["bytes"], state["last_write_ts"], state["last_read_ts"]) == (0, 0, None, None)
    assert state["type"] == "log"
    assert "queue" not in state
    assert state["config"] == DEFAULTS


def test_a_queue_shows_its_jobs(web: Web, topic: str) -> None:
    web.put(topic, type="queue")
    web.write(topic, 1, 2, 3)
    web.claim(topic, "w")
    assert web.state(topic)["queue"] == {"ready": 2, "in_flight": 1, "dead_lettered": 0}


def test_looking_without_touching_is_not_consuming(web: Web, topic: str) -> None:
    web.put(topic)
    assert web.state(topic)["last_read_ts"] is None
    before = int(time.time() * 1000) - 1000
    web.ask("GET", f"/v0/topics/{topic}")
    seen = web.state(topic)["last_read_ts"]
    assert isinstance(seen, int)
    assert seen >= before
    assert web.state(topic)["effective_priority"] == pytest.approx(500, abs=20)


def test_a_look_never_creates(web: Web, topic: str) -> None:
    for _ in range(2):
        refused = web.refused("GET", f"/v0/topics/{topic}", status=404)
        assert (refused.code, refused.detail) == ("topic_not_found", {"topic": topic})


def test_topics_are_listed_by_name_in_pages(web: Web, topic: str) -> None:
    names = sorted(f"{topic}:{number}" for number in range(7))
    for name in reversed(names):
        web.put(name)
    seen: list[object] = []
    cursor = ""
    for size in (3, 3, 1):
        page = web.ask("GET", f"/v0/topics?prefix={topic}:&page_size=3&cursor={cursor}")
        assert len(listed(page, "topics")) == size
        seen += [one["topic"] for one in listed(page, "topics")]
        cursor = str(page.get("next_cursor", ""))
        assert bool(cursor) == (size == 3)
    assert seen == names
    entry = listed(web.ask("GET", f"/v0/topics?prefix={topic}:"), "topics")[0]
    assert entry.keys() == {
        "topic", "head_seq", "earliest_seq", "count", "bytes", "durable", "effective_priority",
    }  # fmt: skip


def test_a_page_that_ends_exactly_has_no_next(one: Web, topic: str) -> None:
    for number in range(2):
        one.put(f"{topic}:{number}")
    assert "next_cursor" not in one.ask("GET", f"/v0/topics?prefix={topic}:&page_size=2")


def test_page_sizes_are_brought_into_bounds(one: Web, topic: str) -> None:
    one.put(f"{topic}:1")
    for size in ("0", "-467", "1001", "99999999999999999999"):
        assert len(listed(one.ask("GET", f"/v0/topics?prefix={topic}:&page_size={size}"), "topics")) == 1
    assert one.refused("GET", "/v0/topics?page_size=many", status=400).code == "invalid_request"


@pytest.mark.parametrize("cursor", ["nonsense", "bm9uc2Vuc2U=", "e30=", "eyJsYXN0IjoxfQ==", "%00", "ey"])
def test_a_cursor_that_no_list_returned_is_refused(one: Web, cursor: str) -> None:
    for path in ("/v0/topics", "/v0/routers"):
        assert one.refused("GET", f"{path}?cursor={cursor}", status=400).code == "invalid_request"


def test_a_name_that_fits_no_path_is_left_out_of_the_list(one: Web, shared_broker: Broker, topic: str) -> None:
    with redis.Redis(port=shared_broker.resp_port, protocol=2) as client:
        for name in (f"{topic} odd", f"{topic}/odd", f"{topic}.even"):
            client.execute_command("ADDJOB", name, "x", 0)
    shown = listed(one.ask("GET", f"/v0/topics?prefix={topic}"), "topics")
    assert [entry["topic"] for entry in shown] == [f"{topic}.even"]


def test_a_deleted_topic_is_gone_with_its_routers_and_begins_again_at_one(web: Web, topic: str) -> None:
    web.ask("PUT", f"/v0/routers/{topic}->copy", {"source": topic, "dest": f"{topic}.copy"}, 201)
    web.write(topic, 1, 2)
    answer = web.ask("DELETE", f"/v0/topics/{topic}")
    assert (answer["topic"], answer["deleted"], answer["routers_removed"]) == (topic, True, [f"{topic}->copy"])
    again = web.ask("DELETE", f"/v0/topics/{topic}")
    assert (again["deleted"], again["routers_removed"]) == (False, [])
    assert web.write(topic, 1, status=201)["first_seq"] == 1


def test_a_topic_with_records_survives_a_delete_if_empty(web: Web, topic: str) -> None:
    web.put(topic)
    web.write(topic, 1, 2)
    refused = web.refused("DELETE", f"/v0/topics/{topic}?if_empty=true", status=409)
    assert (refused.code, refused.detail) == ("topic_not_empty", {"topic": topic, "count": 2})
    assert web.ask("DELETE", f"/v0/topics/{topic}?if_empty=0")["deleted"] is True


@pytest.mark.parametrize("value", ["True", "yes", "on", "maybe", "", "TRUE", "2"])
def test_a_guard_that_is_not_understood_deletes_nothing(web: Web, topic: str, value: str) -> None:
    web.put(topic)
    web.write(topic, 1)
    assert web.refused("DELETE", f"/v0/topics/{topic}?if_empty={value}", status=400).code == "invalid_request"
    assert web.ask("GET", f"/v0/topics/{topic}")["count"] == 1


@pytest.mark.parametrize("name", ["-a", ".a", "a b", "a%2Fb", "%C3%A9", "a" * 256, "a%00", "a>b", "a%7E"])
def test_names_that_are_none_are_refused(one: Web, name: str) -> None:
    response = one.client.put(f"/v0/topics/{name}")
    if "%2F" in name:
        assert response.status_code in (400, 404), "a slash ends a name"
    else:
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("name", ["a", "0", "A.b_c:d-e", "x" * 255])
def test_names_of_every_allowed_sign_are_taken(one: Web, name: str) -> None:
    one.ask("DELETE", f"/v0/topics/{name}")
    assert one.put(name)["topic"] == name

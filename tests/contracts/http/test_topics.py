"""Topics: their config, their state, lists of them, their end."""

from __future__ import annotations

import time

import pytest

from tests.contracts.http.api import Api, part, rows, seqs, timed, whole
from tests.contracts.http.events import Events
from tests.contracts.http.shapes import INT, NUMBER, PERFORMANCE, TIME, check, config


def test_a_put_answers_201_with_the_whole_config_and_200_when_it_changes_nothing(api: Api, topic: str) -> None:
    wanted = {"topic": topic, "created": True, "config": config(), "performance": PERFORMANCE}
    check(api.ask("PUT", f"/topics/{topic}", {}, 201), wanted)
    check(api.ask("PUT", f"/topics/{topic}", {}, 200), {**wanted, "created": False})


def test_an_empty_put_body_means_defaults_and_needs_no_content_type(api: Api, topic: str) -> None:
    response = api.http.put(f"/topics/{topic}")
    assert response.status_code == 201
    check(response.json()["config"], config())


def test_every_field_of_the_config_is_echoed_as_it_was_set(api: Api, topic: str) -> None:
    asked = {
        "type": "queue", "ttl_ms": 600_000, "cap_records": 50, "cap_bytes": 5000, "discard": "reject",
        "durability": "memory", "priority": -7, "auto_priority": False, "auto_create": False,
        "idempotency_window_ms": 5, "dedupe_node": False, "lease_ms": 1234, "claim_jitter_ms": 12,
        "max_deliveries": 3, "dead_letter": f"{topic}.dead", "leases_durable": True,
    }  # fmt: skip
    check(api.put(topic, **asked)["config"], {**asked, "durable": False})
    check(api.state(topic)["config"], {**asked, "durable": False})


@pytest.mark.parametrize(
    ("asked", "echoed"),
    [
        ({"durable": True}, {"durable": True, "durability": "fsync"}),
        ({"durable": False}, {"durable": False, "durability": "disk"}),
        ({"durable": True, "durability": "memory"}, {"durable": False, "durability": "memory"}),
        ({"durable": False, "durability": "fsync"}, {"durable": True, "durability": "fsync"}),
        ({"durability": "ephemeral"}, {"durable": False, "durability": "ephemeral"}),
        ({"lease_ms": 1}, {"lease_ms": 100}),
        ({"lease_ms": 10**12}, {"lease_ms": 86_400_000}),
        ({"claim_jitter_ms": 10**9}, {"claim_jitter_ms": 5000}),
        ({"priority": 5}, {"priority": 5}),
        ({"priority": None, "dead_letter": None}, {}),
        ({"an_unknown_field": [1]}, {}),
    ],
)
def test_the_config_is_resolved_and_clamped(
    api: Api, topic: str, asked: dict[str, object], echoed: dict[str, object]
) -> None:
    check(api.put(topic, **asked)["config"], config(**echoed))


def test_the_durability_class_may_change_and_the_type_may_not(api: Api, topic: str) -> None:
    api.put(topic, durability="memory")
    api.write(topic, 1)
    for durability in ("fsync", "ephemeral", "disk", "fsync"):
        answer = api.put(topic, 200, durability=durability)
        assert part(answer, "config")["durability"] == durability
    assert seqs(api.diff(topic)) == [1]
    detail = {"existing_type": "log", "requested_type": "queue"}
    refused = api.refused("PUT", f"/topics/{topic}", {"type": "queue"}, status=409, code="topic_exists_incompatible")
    assert detail.items() <= refused.items()


def test_the_state_of_an_empty_topic(api: Api, topic: str) -> None:
    api.put(topic)
    check(
        api.state(topic),
        {
            "topic": topic, "type": "log", "head_seq": 0, "earliest_seq": 1, "next_seq": 1, "count": 0, "bytes": 0,
            "config": config(), "effective_priority": NUMBER, "last_write_ts": None, "last_read_ts": None,
            "performance": PERFORMANCE,
        },
    )  # fmt: skip


def test_the_state_follows_writes_and_a_queue_tells_of_its_jobs(api: Api, topic: str) -> None:
    api.put(topic, type="queue")
    api.write(topic, "a", "b", "c")
    check(
        api.ask("GET", f"/topics/{topic}"),
        {
            "topic": topic, "type": "queue", "head_seq": 3, "earliest_seq": 1, "next_seq": 4, "count": 3, "bytes": INT,
            "config": config(type="queue"), "effective_priority": NUMBER, "last_write_ts": TIME, "last_read_ts": TIME,
            "queue": {"ready": 3, "in_flight": 0, "dead_lettered": 0}, "performance": PERFORMANCE,
        },
    )  # fmt: skip


@pytest.mark.parametrize("word", ["false", "0"])
def test_a_look_without_touch_leaves_the_time_of_the_last_read_alone(api: Api, topic: str, word: str) -> None:
    api.put(topic)
    assert api.ask("GET", f"/topics/{topic}?touch={word}")["last_read_ts"] is None
    assert api.ask("GET", f"/topics/{topic}?touch={word}")["last_read_ts"] is None
    api.ask("GET", f"/topics/{topic}")
    before = api.ask("GET", f"/topics/{topic}?touch={word}")["last_read_ts"]
    check(before, TIME)
    time.sleep(0.01)  # so that another touch would show
    assert api.ask("GET", f"/topics/{topic}?touch={word}")["last_read_ts"] == before
    api.ask("GET", f"/topics/{topic}?touch=perhaps")  # neither true nor false: the default, which touches
    assert api.ask("GET", f"/topics/{topic}?touch={word}")["last_read_ts"] != before


def test_the_effective_priority_is_the_manual_one_or_that_of_a_fresh_read(api: Api, topic: str) -> None:
    api.put(topic, priority=5000)
    assert api.state(topic)["effective_priority"] == 1000
    api.put(topic, 200, priority=-5000)
    assert api.state(topic)["effective_priority"] == -1000
    api.put(topic, 200, priority=7)
    assert api.state(topic)["effective_priority"] == 7
    api.put(f"{topic}.auto")
    api.diff(f"{topic}.auto")
    state = api.state(f"{topic}.auto")
    check(state["effective_priority"], NUMBER)
    assert 450 < float(str(state["effective_priority"])) <= 500


def test_a_look_at_an_absent_topic_does_not_make_it(api: Api, topic: str) -> None:
    for _ in range(2):
        api.refused("GET", f"/topics/{topic}", status=404, code="topic_not_found", detail={"topic": topic})


def test_the_list_is_sorted_by_name_and_tells_the_agreed_fields(api: Api, topic: str) -> None:
    for name in ("c", "a", "b"):
        api.put(f"{topic}.{name}", durable=name == "b")
    api.write(f"{topic}.a", {"x": 1})
    answer = api.ask("GET", f"/topics?prefix={topic}.")
    line = {"head_seq": 0, "earliest_seq": 1, "count": 0, "bytes": 0, "durable": False, "effective_priority": NUMBER}
    wanted = [
        {"topic": f"{topic}.a", **line, "head_seq": 1, "count": 1, "bytes": INT},
        {"topic": f"{topic}.b", **line, "durable": True},
        {"topic": f"{topic}.c", **line},
    ]
    check(answer, {"topics": wanted, "performance": PERFORMANCE})


def test_lists_are_paged_with_cursors_as_they_were_given(api: Api, topic: str) -> None:
    names = [f"{topic}.{number}" for number in range(7)]
    for name in names:
        api.put(name)
    found: list[object] = []
    cursor = ""
    for _ in range(4):
        answer = api.ask("GET", f"/topics?prefix={topic}.&page_size=2{cursor}")
        found += [one["topic"] for one in rows(answer, "topics")]
        if "next_cursor" not in answer:
            break
        cursor = f"&cursor={answer['next_cursor']}"
    assert found == names
    assert "next_cursor" not in api.ask("GET", f"/topics?prefix={topic}.&page_size=7")


def test_the_page_size_is_clamped(api: Api, topic: str) -> None:
    for number in range(3):
        api.put(f"{topic}.{number}")
    assert len(rows(api.ask("GET", f"/topics?prefix={topic}.&page_size=0"), "topics")) == 1
    assert len(rows(api.ask("GET", f"/topics?prefix={topic}.&page_size=100000"), "topics")) == 3


def test_a_deleted_topic_is_gone_and_starts_again_at_seq_1(api: Api, topic: str) -> None:
    api.write(topic, 1, 2, 3, status=201)
    wanted = {"topic": topic, "deleted": True, "routers_removed": [], "performance": PERFORMANCE}
    check(api.ask("DELETE", f"/topics/{topic}"), wanted)
    check(api.ask("DELETE", f"/topics/{topic}"), {**wanted, "deleted": False})
    assert api.write(topic, 4, status=201)["seqs"] == [1]


def test_deleting_a_topic_takes_its_routers_along(api: Api, topic: str) -> None:
    a, b, c = f"{topic}.a", f"{topic}.b", f"{topic}.c"
    api.router(f"{topic}.1", a, b)
    api.router(f"{topic}.2", b, c)
    assert sorted(str(name) for name in api.ask("DELETE", f"/topics/{b}")["routers_removed"]) == [  # type: ignore[attr-defined]
        f"{topic}.1", f"{topic}.2",
    ]  # fmt: skip
    api.refused("GET", f"/routers/{topic}.1", status=404, code="router_not_found", detail={"router": f"{topic}.1"})


def test_if_empty_keeps_a_topic_that_holds_records(api: Api, topic: str) -> None:
    api.write(topic, 1, 2, status=201)
    api.refused(
        "DELETE", f"/topics/{topic}?if_empty=true", status=409, code="topic_not_empty",
        detail={"topic": topic, "count": 2},
    )  # fmt: skip
    api.delete(topic, before_seq=3)
    assert timed(api.ask("DELETE", f"/topics/{topic}?if_empty=1"))["deleted"] is True


def test_tightened_caps_apply_at_once(api: Api, topic: str) -> None:
    api.write(topic, *range(10), status=201)
    api.put(topic, 200, cap_records=4)
    state = api.state(topic)
    assert (whole(state, "count"), whole(state, "earliest_seq"), whole(state, "head_seq")) == (4, 7, 10)
    assert seqs(api.diff(topic)) == [7, 8, 9, 10]


def test_a_list_touches_its_topics_only_on_request_and_a_stream_does_when_it_reads(api: Api, topic: str) -> None:
    api.put(topic)
    api.ask("GET", f"/topics?prefix={topic}")
    assert api.state(topic)["last_read_ts"] is None
    api.ask("GET", f"/topics?prefix={topic}&touch=true")
    check(api.state(topic)["last_read_ts"], TIME)
    api.put(f"{topic}.watched")
    wid = api.ask("POST", "/watch", {"topics": {f"{topic}.watched": {}}})["wid"]
    with Events(api, f"/watch/{wid}") as events:
        events.next("caught-up")
        check(api.state(f"{topic}.watched")["last_read_ts"], TIME)

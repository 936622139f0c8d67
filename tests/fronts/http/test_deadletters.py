"""Dead letters over HTTP: they go back by id or by count, under their old seq and priority."""

from __future__ import annotations

import httpx
import pytest

from esker.engine.ids import message_id, to_ulid
from tests.fronts.http.web import Web, listed


def _bury(web: Web, queue: str, grave_type: str, count: int) -> str:
    """Jobs that failed once too often; the topic where they are now."""
    grave = f"{queue}.dead"
    web.put(grave, type=grave_type)
    web.put(queue, type="queue", max_deliveries=1, dead_letter=grave)
    web.write(queue, *range(count))
    seqs = [job["$seq"] for job in web.claim(queue, "w", max=count)]
    web.ask("POST", f"/v0/topics/{queue}/nack", {"node": "w", "seqs": seqs})
    assert web.claim(queue, "w", max=count) == []
    return grave


def _ids(web: Web, grave: str) -> list[str]:
    number = listed(web.ask("POST", "/v0/bulk/plan", {"topics": [grave]}), "topics")[0]["epoch"]
    assert isinstance(number, int)
    return [
        to_ulid(message_id(int(str(letter["$ts"])), number, 0, int(str(letter["$seq"]))))
        for letter in listed(web.diff(grave), "records")
    ]


@pytest.mark.parametrize("grave_type", ["queue", "log"])
def test_letters_go_back_by_id_and_only_once(one: Web, topic: str, grave_type: str) -> None:
    grave = _bury(one, topic, grave_type, 3)
    first, second, _ = _ids(one, grave)
    answer = one.ask("POST", f"/v0/topics/{grave}/replay", {"ids": [first, second]})
    assert (answer["topic"], answer["replayed"], answer["missed"]) == (grave, 2, [])
    again = one.ask("POST", f"/v0/topics/{grave}/replay", {"ids": [first]})
    assert (again["replayed"], again["missed"]) == (0, [first])
    assert [(job["$seq"], job["data"], job["deliveries"]) for job in one.claim(topic, "w", max=9)] == [
        (1, 0, 1),
        (2, 1, 1),
    ]
    assert one.ask("POST", f"/v0/topics/{grave}/replay", {"count": 1000})["replayed"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ids": [], "count": 1},
        {"ids": []},
        {"count": 0},
        {"count": 1001},
        {"ids": ["x"]},
        {"ids": ["A" * 26] * 1001},
    ],
)
def test_a_replay_of_nonsense_is_refused(one: Web, topic: str, body: dict[str, object]) -> None:
    one.put(topic, type="queue")
    one.refused("POST", f"/v0/topics/{topic}/replay", body, status=400)


def test_a_topic_that_is_missing_is_told(one: Web, topic: str) -> None:
    assert one.refused("POST", f"/v0/topics/{topic}/replay", {"count": 1}, status=404).code == "topic_not_found"


def test_only_a_key_that_reaches_every_topic_may_send_letters_back(guarded: httpx.Client) -> None:
    for key, status in (("k-write", 403), ("k-team", 403), ("k-admin", 404)):
        headers = {"authorization": f"Bearer {key}"}
        answer = guarded.post("/v0/topics/team-a.dead/replay", json={"count": 1}, headers=headers)
        assert answer.status_code == status, answer.text

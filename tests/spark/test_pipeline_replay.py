"""`replay`: shows before it does, moves dead letters back as they were, copies records once."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from esker.errors import SettingsError
from esker.spark.pipelines import registry
from esker.spark.pipelines.registry import Result
from esker.spark.pipelines.replay import letter_id
from tests.spark.lake import Broker, Lake
from tests.spark.served import served


def _replay(lake: Lake, **given: str) -> Result:
    named = {name.replace("__", "."): text for name, text in given.items()}
    return registry.run("replay", lake.spark, named, endpoint=lake.broker.url)


def _bury(lake: Lake, queue: str, grave_type: str, count: int) -> str:
    """Jobs of which each has failed once too often."""
    ask = lake.broker.ask
    grave = f"{queue}-dead"
    ask("PUT", f"/v0/topics/{grave}", {"type": grave_type, "durability": "fsync"})
    config = {"type": "queue", "max_deliveries": 1, "dead_letter": grave, "lease_ms": 60_000}
    ask("PUT", f"/v0/topics/{queue}", config)
    jobs = [(json.dumps({"n": n}), n % 3, f"t{n}") for n in range(count)]
    lake.write(lake.spark.createDataFrame(jobs, "value string, priority long, tag string"), topic=queue, type="queue")
    claimed = ask("POST", f"/v0/topics/{queue}/claim", {"node": "w", "max": count})["claimed"]
    seqs = [job["$seq"] for job in claimed]
    assert ask("POST", f"/v0/topics/{queue}/nack", {"node": "w", "seqs": seqs})["nacked"] == count
    ask("POST", f"/v0/topics/{queue}/claim", {"node": "w", "max": count})
    return grave


def _living(lake: Lake, queue: str) -> list[tuple[int, str]]:
    records = lake.broker.ask("POST", f"/v0/topics/{queue}/diff", {"include_tags": True})["records"]
    return sorted((record["data"]["n"], record["$tag"]) for record in records)


def _served(lake: Lake, queue: str) -> list[int]:
    return [json.loads(body)["n"] for body in served(lake.broker, queue)]


@pytest.mark.parametrize("grave_type", ["queue", "log"])
def test_letters_chosen_by_sql_go_back_as_they_were(
    lake: Lake, another: Callable[..., Broker], grave_type: str
) -> None:
    lake = Lake(lake.spark, another())
    queue = f"replay-{grave_type}"
    grave = _bury(lake, queue, grave_type, 6)
    where = "get_json_object(cast(value AS string), '$.n') >= 2 AND priority > 0"
    shown = _replay(lake, source=grave, where=where)
    assert (shown.facts["chosen"], shown.facts["applied"]) == (3, False)
    assert any(queue in line and "3" in line for line in shown.lines)
    assert _living(lake, queue) == []
    done = _replay(lake, source=grave, where=where, apply="true")
    assert (done.facts["replayed"], done.facts["missed"]) == (3, 0)
    assert _living(lake, queue) == [(2, "t2"), (4, "t4"), (5, "t5")]
    assert _replay(lake, source=grave, where=where, apply="true").facts["chosen"] == 0
    assert _replay(lake, source=grave, apply="true").facts["replayed"] == 3
    assert _served(lake, queue) == [0, 3, 1, 4, 2, 5], "by priority, then by age"


def test_copies_go_to_another_queue_once_and_keep_their_priority(lake: Lake, another: Callable[..., Broker]) -> None:
    lake = Lake(lake.spark, another())
    grave = _bury(lake, "replay-copied", "queue", 4)
    given = {"source": grave, "target": "replay-second", "apply": "true", "upto": "100"}
    for _ in range(2):
        assert _replay(lake, **given).facts["copied"] == 4
    assert _living(lake, "replay-second") == [(n, f"t{n}") for n in range(4)]
    assert _served(lake, "replay-second") == [0, 3, 1, 2]
    assert _replay(lake, source=grave).facts["chosen"] == 4


def test_records_of_a_log_become_jobs(lake: Lake) -> None:
    lake.broker.fill("replay-history", 10)
    given = {"source": "replay-history", "table": "records", "where": "offset BETWEEN 3 AND 5",
             "target": "replay-again", "map__priority": "-offset"}  # fmt: skip
    assert _replay(lake, **given).facts["chosen"] == 3
    assert _replay(lake, **given, apply="true").facts["copied"] == 3
    assert _served(lake, "replay-again") == [4, 3, 2]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"source": "replay-none"}, "source: there is no topic 'replay-none'"),
        ({"source": "replay-wrong", "table": "records"}, "name one: --set target"),
        ({"source": "replay-wrong", "map__tag": "tag"}, "map.* shapes copies"),
        ({"source": "replay-wrong", "target": "replay-wrong"}, "the same topic"),
        ({"source": "replay-wrong", "table": "records", "target": "x", "where": "ofset > 1"}, "where: 'ofset > 1'"),
    ],
)
def test_what_cannot_be_replayed_is_told(lake: Lake, given: dict[str, str], told: str) -> None:
    lake.broker.fill("replay-wrong", 1)
    with pytest.raises(SettingsError) as caught:
        _replay(lake, **given)
    assert told in str(caught.value)


def test_an_id_is_the_place_of_a_letter() -> None:
    from esker.engine.ids import message_id, to_ulid

    place = (1_800_000_000_123, 77, 3, 123_456)
    assert letter_id(*place) == to_ulid(message_id(*place))

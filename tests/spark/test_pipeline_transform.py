"""`transform`: the declarations that ship with Esker do what they say, and so do modes, restarts and mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from esker.errors import SettingsError
from esker.spark.pipelines import registry
from esker.spark.pipelines.registry import Result
from tests.spark.lake import Broker, Lake
from tests.spark.served import served

EXAMPLES = Path(__file__).parents[2] / "examples" / "transforms"

Order = dict[str, object]


def _transform(lake: Lake, file: Path, checkpoint: Path) -> Result:
    given = {"file": str(file)}
    return registry.run("transform", lake.spark, given, endpoint=lake.broker.url, checkpoint=str(checkpoint))


def _order(number: int, product: str, amount: float, at: str) -> Order:
    return {"data": {"id": str(number), "product": product, "amount": amount, "at": f"2026-01-01T{at}Z"}}


def _rows(lake: Lake, topic: str) -> list[dict[str, object]]:
    return [json.loads(bytes(row.value)) for row in lake.read(subscribe=topic).orderBy("offset").collect()]


def test_the_examples_count_join_and_dedup(lake: Lake, another: Callable[..., Broker], tmp_path: Path) -> None:
    own = Lake(lake.spark, another())
    own.broker.write("orders", [
        _order(1, "tea", 5, "10:00:05"), _order(2, "tea", 150, "10:00:45"), _order(3, "milk", 2, "10:01:10"),
        {"data": {"amount": "nonsense"}}, {"data": "text"},
    ])  # fmt: skip
    file, checkpoint = EXAMPLES / "orders-per-minute.toml", tmp_path / "counts"
    first = _transform(own, file, checkpoint)
    assert first.facts["malformed"] == {"orders": 2}
    own.broker.write("orders", [_order(4, "tea", 1, "10:30:00")])
    assert _transform(own, file, checkpoint).facts["rows"] == 1
    # both closed minutes are there now; the one that comes now is late for its minute
    own.broker.write("orders", [_order(5, "tea", 1, "10:00:30"), _order(6, "tea", 1, "10:40:00")])
    assert _transform(own, file, checkpoint).facts["late"] == 1
    assert sorted((str(row["minute"])[11:16], row["product"], row["orders"], row["amount"])
                  for row in _rows(own, "orders-per-minute")) == [
        ("10:00", "tea", 2, 155.0), ("10:01", "milk", 1, 2.0), ("10:30", "tea", 1, 1.0),
    ]  # fmt: skip
    assert _transform(own, file, checkpoint).facts["rows"] == 0

    own.broker.write("payments", [
        {"data": {"order_id": order, "method": "card", "at": f"2026-01-01T{at}Z"}}
        for order, at in (("1", "10:05:00"), ("2", "10:03:00"), ("3", "11:30:00"), ("99", "10:00:00"))
    ])  # fmt: skip
    _transform(own, EXAMPLES / "paid-orders.yaml", tmp_path / "paid")
    assert [json.loads(body)["id"] for body in served(own.broker, "shipping")] == ["2", "1"], "the dear one first"

    own.broker.write("clicks", [{"data": {"id": str(number % 3), "page": "home"}} for number in range(9)])
    _transform(own, EXAMPLES / "first-clicks.toml", tmp_path / "clicks")
    own.broker.write("clicks", [{"data": {"id": "2", "page": "home"}}, {"data": {"id": "3", "page": "home"}}])
    _transform(own, EXAMPLES / "first-clicks.toml", tmp_path / "clicks")
    assert sorted(str(row["id"]) for row in _rows(own, "first-clicks")) == ["0", "1", "2", "3"]


def _declare(folder: Path, **changes: object) -> Path:
    declared: dict[str, object] = {
        "name": "declared",
        "partitions": 2,
        "sql": "SELECT n FROM numbers",
        "sources": {"numbers": {"topic": "numbers", "schema": "n INT"}},
        "sink": {"topic": "out"},
    }
    folder.mkdir(exist_ok=True)
    path = folder / "declared.yaml"
    path.write_text(json.dumps({**declared, **changes}))  # JSON is YAML
    return path


def test_update_mode_writes_what_changed_once(lake: Lake, tmp_path: Path) -> None:
    lake.broker.fill("tf-updates", 6)
    file = _declare(
        tmp_path,
        sql="SELECT n % 2 AS odd, count(*) AS count FROM numbers GROUP BY 1",
        sources={"numbers": {"topic": "tf-updates", "schema": "n INT"}},
        sink={"topic": "tf-updated", "mode": "update", "columns": {"tag": "cast(odd AS string)"}},
    )
    _transform(lake, file, tmp_path / "checkpoint")
    lake.broker.fill("tf-updates", 1, first=6)
    _transform(lake, file, tmp_path / "checkpoint")
    commits = tmp_path / "checkpoint" / "commits"
    for last in (commits / "1", commits / ".1.crc"):
        last.unlink(missing_ok=True)  # as if the driver had died between the sink and its own note
    _transform(lake, file, tmp_path / "checkpoint")
    rows = _rows(lake, "tf-updated")
    assert sorted((row["odd"], row["count"]) for row in rows[:2]) == [(0, 3), (1, 3)]
    assert [(row["odd"], row["count"]) for row in rows[2:]] == [(0, 4)]


def test_a_python_function_makes_the_rows_and_their_topics(lake: Lake, tmp_path: Path) -> None:
    lake.broker.fill("tf-python", 4)
    (tmp_path / "split.py").write_text(
        "def split(tables):\n"
        "    numbers = tables['numbers']\n"
        "    return numbers.selectExpr('n', \"concat('tf-python-', n % 2) AS to\", 'record_offset', 'record_tag')\n"
    )
    file = _declare(
        tmp_path,
        sql=None,
        python="split.py:split",
        sources={"numbers": {"topic": "tf-python", "schema": "n INT"}},
        sink={"columns": {"topic": "to", "value": "named_struct('n', n)", "tag": "record_tag"}},
    )
    _transform(lake, file, tmp_path / "checkpoint")
    assert sorted(lake.values("tf-python-0")) == [0, 2]
    assert sorted(lake.values("tf-python-1")) == [1, 3]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sql": "SELECT x FROM numbers"}, "sql: "),
        ({"sql": "SELEC"}, "sql: "),
        ({"sql": "SELECT 1 AS value"}, "sql reads none of the sources numbers"),
        ({"sql": "SELECT n, count(*) FROM numbers GROUP BY n"}, "sql: "),
        ({"sources": {"numbers": {"topic": "tf-wrong", "schema": "n NIT"}}}, "sources.numbers.schema"),
        ({"sources": {"numbers": {"topic": "tf-wrong", "schema": "event_time INT"}}}, "sources.numbers.schema"),
        ({"sources": {"numbers": {"topic": "tf-wrong", "schema": "n INT", "time": "n"}}}, "sources.numbers.time is of"),
        ({"sources": {"numbers": {"topic": "tf-wrong", "schema": "n INT", "time": "x"}}}, "sources.numbers.time: "),
        ({"sources": {"numbers": {"topic": "tf-wrong", "schema": "n INT", "watermark": "1 hour", "dedup": ["x"]}}},
         "sources.numbers.dedup: there is no column 'x'"),
        ({"sink": {"topic": "out", "columns": {"tag": "x"}}}, "sink.columns.tag: 'x'"),
        ({"sink": {"topic": "out", "columns": {"value": "x"}}}, "sink.columns.value: 'x'"),
    ],
)  # fmt: skip
def test_a_declaration_that_does_not_fit_is_told_with_its_key(
    lake: Lake, tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    lake.broker.fill("numbers", 1)
    with pytest.raises(SettingsError) as caught:
        _transform(lake, _declare(tmp_path, **changes), tmp_path / "checkpoint")
    assert told in str(caught.value)
    assert "declared.yaml" in str(caught.value)


def test_malformed_records_can_end_the_stream(lake: Lake, tmp_path: Path) -> None:
    lake.broker.write("tf-malformed", [{"data": {"n": 1}}, {"data": ["no"]}])
    file = _declare(tmp_path, sources={"numbers": {"topic": "tf-malformed", "schema": "n INT", "malformed": "fail"}},
                    sink={"topic": "tf-nothing"})  # fmt: skip
    with pytest.raises(Exception, match=r"record 2 of topic tf-malformed does not fit sources\.numbers\.schema"):
        _transform(lake, file, tmp_path / "checkpoint")
    assert lake.broker.plan("tf-nothing")["missing"] == ["tf-nothing"]


def test_a_stream_needs_a_place_to_remember(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--checkpoint DIR"):
        registry.run("transform", lake.spark, {"file": str(_declare(tmp_path))}, endpoint=lake.broker.url)

"""The tables of `lifecycle` add up to what happened, and the report is one page that needs nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from esker.engine.commands import CreateTopic, Delete, DeleteTopic, Enqueue, NewJob, Purge
from esker.engine.config import TopicConfig
from esker.errors import SettingsError
from esker.spark.pipelines.codes import Job, State
from esker.spark.pipelines.lifecycle import DEPTH, Moments, Tables, lifecycle, report, write
from esker.spark.pipelines.report import Collected, _duration, _joined, _time_axis, html
from tests.engine.rig import START_MS
from tests.spark.histories import Life
from tests.spark.test_audit import table

_LONG_MS = 19 * 60_000


def _life() -> Life:
    """Two minutes. In `q`: priorities 0 and 5, each waits 100 ms or a minute; workers ann and bob. In `r`: the rest.

    Long after that, `d` gets three jobs and is deleted: no row of a job tells that those went.
    """
    life = Life()
    life.do(CreateTopic(b"q", TopicConfig(max_deliveries=1, dead_letter=b"grave")))
    life.do(CreateTopic(b"r", TopicConfig()))
    life.now += 60_000 - life.now % 60_000
    for _ in range(10):
        life.do(Enqueue(b"q", [NewJob(b"x", 5), NewJob(b"x", 0)]))
    life.now += 100
    for number in range(10):  # those of priority 0, since the lowest is the best
        (each,) = life.lease(1, b"q", 5000, b"ann" if number % 5 else b"bob")
        life.now += 20
        life.ack(each)
    life.now += 60_000
    (each,) = life.lease(1, b"q", 5000, b"ann")
    life.now += 7
    life.nack(each)
    life.lease(1, b"q", 5000, b"ann")  # finds the one that failed and buries it, and gets the next
    life.add(b"late", 0, b"r", ttl_ms=10)
    life.pass_ms(2000)
    gone = life.add(b"deleted", 0, b"r")
    life.do(Delete([gone]))
    life.add_many(b"a", b"b", b"c", topic=b"r")
    life.do(Purge(b"r"))
    life.now += _LONG_MS
    life.do(CreateTopic(b"d", TopicConfig()))
    life.add_many(b"a", b"b", b"c", topic=b"d")
    life.do(DeleteTopic(b"d"))
    return life


@pytest.fixture(scope="module")
def events(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return table(spark, tmp_path_factory.mktemp("lifecycle"), _life().rows())


@pytest.fixture(scope="module")
def tables(events: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with lifecycle(events) as found:
        yield write(found, str(tmp_path_factory.mktemp("tables")))


@pytest.fixture(scope="module")
def page(tables: Tables) -> str:
    return report(tables)


def test_minutes_and_sums_tell_what_became_of_the_jobs(tables: Tables) -> None:
    names = ("enqueued", "delivered", "acked", "retried", "expired", "dead_lettered", "deleted")
    sums = {row["topic"]: tuple(row[name] for name in names) for row in tables.topics.collect()}
    assert sums == {"d": (3, 0, 0, 0, 0, 0, 3), "q": (20, 12, 10, 1, 0, 1, 0), "r": (5, 0, 0, 0, 1, 0, 4)}
    minutes = tables.minutes.filter("topic = 'q'").orderBy("minute").collect()
    assert [tuple(row[name] for name in names) for row in minutes] == [
        (20, 10, 10, 0, 0, 0, 0), (0, 2, 0, 1, 0, 1, 0),
    ]  # fmt: skip
    assert [row["backlog"] for row in minutes] == [10, 9]


def test_the_backlog_is_known_at_its_peak_and_not_only_when_a_minute_ends(tables: Tables, page: str) -> None:
    rows = tables.minutes.orderBy("topic", "minute").collect()
    peaks: dict[str, list[tuple[int, int]]] = {row["topic"]: [] for row in rows}
    for row in rows:
        peaks[row["topic"]].append((row["backlog_max"], row["backlog"]))
    assert peaks == {"d": [(3, 0)], "q": [(20, 10), (10, 9)], "r": [(3, 0)]}
    assert "at most 20" in page


def test_peaks_are_followed_within_a_second_and_across_pieces_of_a_history() -> None:
    moments = Moments(1)
    job = Job(0, 1, State.LEASED, 0, 0, 0, -1, 0)
    for _ in range(5):
        moments.came(1000)
    taken = moments.take()
    for _ in range(4):
        moments.settled(1500, job, acked=True)
    moments.came(1900)
    moments.came(4000)
    moments.lost_sight(3)
    taken += moments.finish()
    depths = [(time_ms, grew, peak) for what, _, time_ms, grew, _, _, peak, _ in taken if what == DEPTH]
    assert depths == [(1000, 2, 5), (4000, -2, 1)]


def test_times_are_told_by_priority(tables: Tables) -> None:
    first, second = tables.priorities.filter("topic = 'q'").orderBy("priority").collect()
    assert (first["priority"], first["delivered"], first["run_p50_ms"], first["run_p99_ms"]) == (0, 10, 20, 20)
    assert 100 <= first["wait_p50_ms"] <= first["wait_p90_ms"] <= first["wait_p99_ms"] == first["wait_max_ms"] == 280
    assert second["wait_p50_ms"] == 60_300
    assert second["waiting"] == 8
    assert second["waiting_longest_ms"] >= _LONG_MS  # to the last event of all, which is not one of this queue
    assert (first["inversions"], first["rank_max"], second["rank_max"]) == (0, 0, 0)


def test_who_waits_is_measured_at_the_time_that_is_given(events: DataFrame) -> None:
    last_ms = events.selectExpr("max(unix_millis(time))").collect()[0][0]
    with lifecycle(events, now_ms=last_ms + 5 * _LONG_MS) as found:
        row = found.topics.filter("topic = 'q'").collect()[0]
    assert row["waiting_longest_ms"] >= 6 * _LONG_MS


def test_workers_have_their_shares(tables: Tables) -> None:
    rows = tables.workers.filter("topic = 'q'").collect()
    shares = {row["worker"]: (row["delivered"], row["acked"], row["returned"], row["busy_ms"]) for row in rows}
    assert shares == {"ann": (10, 8, 1, 167), "bob": (2, 2, 0, 40)}
    assert sum(row["share"] for row in rows) == pytest.approx(1)


def test_the_report_is_one_page_that_needs_nothing_else(page: str) -> None:
    assert page.count("<svg") == 10  # six of q, and two of r and of d, where nothing was delivered
    assert "<script" not in page
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert "currentColor" in page
    assert "every delivery took the best ready job" in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_names_from_the_history_cannot_write_into_the_page() -> None:
    line: dict[str, object] = dict.fromkeys(
        ("enqueued", "delivered", "acked", "retried", "expired", "dead_lettered", "deleted", "waiting", "inversions"), 1
    )
    times = ("wait_p50_ms", "wait_p90_ms", "wait_p99_ms", "run_p50_ms", "run_p90_ms", "run_p99_ms")
    line |= {**dict.fromkeys(times, 5), "topic": "<b>$x_1$", "waiting_longest_ms": 3}
    worker = {**line, "worker": "<i>&$\\frac$", "share": 1.0}
    minute = {**line, "minute_ms": 60_000, "backlog": 1, "backlog_max": 1}
    page = html(Collected([line], [minute], [], [worker], warnings=["<b>"]))
    assert "<b>" not in page
    assert "<i>" not in page
    assert "&lt;b&gt;" in page


def test_a_history_without_jobs_makes_a_page_that_says_so() -> None:
    assert "no jobs" in html(Collected([], [], [], []))


def test_a_long_history_is_drawn_with_few_points() -> None:
    line: dict[str, object] = {
        "topic": "q", "enqueued": 2, "delivered": 2, "acked": 2, "retried": 0, "expired": 0, "dead_lettered": 0,
        "deleted": 0, "wait_p50_ms": 1, "wait_p90_ms": 1, "wait_p99_ms": 1, "backlog": 1,
    }  # fmt: skip
    minutes = [{**line, "minute_ms": 60_000 * n, "wait_p99_ms": n, "backlog_max": 20_000 - n} for n in range(10_000)]
    joined = _joined(minutes)
    assert len(joined) <= 1500
    assert joined[-1]["wait_p99_ms"] == 9999
    assert joined[0]["backlog_max"] == 20_000
    assert joined[0]["enqueued"] == 2


def test_the_axis_of_one_minute_is_that_minute(page: str) -> None:
    """Without bounds, matplotlib shows some years around a single point."""
    year = datetime.fromtimestamp(START_MS / 1000, UTC).year
    assert {int(found) for found in re.findall(r">(\d{4})(?:-\w{3})?(?:-\d\d)?(?: [\d:]+)?<", page)} <= {year}
    minute = _time_axis([{"minute_ms": 60_000}], 60_000)
    assert minute == pytest.approx((1 / 1440, 2 / 1440))


def test_durations_are_short() -> None:
    assert [_duration(ms) for ms in (7, 1500, 90_000, 7_200_000, 400_000_000)] == [
        "7 ms", "1.5 s", "1.5 min", "2 h", "4.63 d",
    ]  # fmt: skip


def test_a_bucket_of_no_length_is_refused(events: DataFrame) -> None:
    with pytest.raises(SettingsError, match="bucket_ms is 0"), lifecycle(events, bucket_ms=0):
        pass


def test_what_is_no_history_is_refused(spark: SparkSession) -> None:
    with pytest.raises(SettingsError, match="no column"), lifecycle(spark.range(1).toDF("position")):
        pass

"""What a run tells: sums of a stream's reports, and errors of Spark in one line."""

from __future__ import annotations

import pytest

from esker.spark.pipelines.failures import in_one_line
from esker.spark.pipelines.progress import StreamTotals


def _report(batch: int, second: int, rows: int, latest: object = None, **more: object) -> dict[str, object]:
    source = {"endOffset": {"t": {"0": 5}, "$epochs": {"t": 900}}, "latestOffset": latest}
    return {"batchId": batch, "timestamp": f"2026-01-01T00:00:{second:02d}Z", "numInputRows": rows,
            "sources": [source], **more}  # fmt: skip


def test_reports_that_come_again_count_once_and_idle_ones_do_not_hide_a_batch() -> None:
    totals = StreamTotals()
    totals.take([_report(0, 1, 10), _report(1, 2, 0)])
    totals.take([_report(0, 1, 10), _report(1, 2, 0), _report(1, 3, 7)])
    assert (totals.rows, totals.batches) == (17, 2)


def test_what_is_left_late_and_observed_is_summed() -> None:
    totals = StreamTotals()
    state = [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 1}]
    latest = {"t": {"0": 25}, "$epochs": {"t": 901}}
    totals.take([
        _report(0, 1, 1, latest, stateOperators=state, observedMetrics={"m": {"rows": 4}}),
        _report(1, 2, 1, '{"t": {"0": 7}}', stateOperators=state, observedMetrics={"m": {"rows": 1}}),
    ])  # fmt: skip
    assert (totals.late, totals.behind, totals.observed) == (6, 2, {"m": 5})


@pytest.mark.parametrize("junk", [{}, {"batchId": "x"}, {"sources": 3}, {"sources": [{"latestOffset": "{"}]}])
def test_a_report_of_another_form_does_no_harm(junk: dict[str, object]) -> None:
    totals = StreamTotals()
    totals.take([{"batchId": 0, "timestamp": "x", **junk}])
    assert totals.rows == 0


TRACE = """[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "reader.py", line 3, in read
    raise DataLoss()
esker.spark.errors.DataLoss: topic 't' has lost 3 records
 SQLSTATE: XXKST
\tat org.apache.spark.Something(Some.scala:3)"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TRACE, "topic 't' has lost 3 records"),
        ("[UNRESOLVED_COLUMN] A column with name `x` cannot be resolved.\n== SQL ==", "A column with name `x`"),
        ("[STREAM_FAILED] Query terminated\nTraceback\nValueError: odd number\n", "odd number"),
        ("\n\nplain words\nmore", "RuntimeError: plain words"),
        ("", "RuntimeError"),
    ],
)
def test_an_error_of_spark_is_told_in_one_line(text: str, told: str) -> None:
    line = in_one_line(RuntimeError(text))
    assert told in line
    assert "\n" not in line
    assert len(in_one_line(RuntimeError("x" * 5000))) <= 600

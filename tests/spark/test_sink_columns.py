# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""What the sink would have to alter, it refuses, with the column, the row and the topic. No Spark session is needed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from esker.spark import foreach_batch
from esker.spark.errors import EskerSparkError
from esker.spark.options import write_options
from esker.spark.writer import prepared


@pytest.mark.parametrize(
    ("headers", "meta", "said"),
    [
        ([("a", b"\xff\xfe")], None, r"column headers, row 11 for topic 't': the value of 'a' is not UTF-8"),
        (
            [("a", b"1"), ("b", b"2"), ("a", b"1")],
            None,
            r"column headers, row 11 for topic 't': the key 'a' is .* twice",
        ),
        ([("a", b"1")], '{"a":2}', r"column headers, row 11 .* 'a' is in the column meta as well"),
        ([("a", b"1")], "[2]", r"column headers, row 11 .* column meta beside it, '\[2\]', is no JSON object"),
    ],
)
def test_headers_that_a_meta_cannot_hold_are_refused(
    headers: list[tuple[str, bytes]], meta: str | None, said: str
) -> None:
    """Instead of being altered, or of one taking the other's place."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    lists = pa.array([None, [{"key": key, "value": value} for key, value in headers]], kind)
    columns = [pa.array([b"1", b"2"]), lists, pa.array([None, meta], pa.string()), pa.array(["s", "t"])]
    batch = pa.RecordBatch.from_arrays(columns, names=["value", "headers", "meta", "topic"])
    with pytest.raises(EskerSparkError, match=said):
        prepared(batch, write_options({}), first=10)


def _not_utf8(kind: pa.DataType) -> pa.Array:
    """Two values, of which the second is no text. Spark's strings may be like that."""
    made = pa.array([b"ok", b"\xff\xfe"], pa.binary())
    return pa.Array.from_buffers(kind, 2, made.buffers())


@pytest.mark.parametrize(
    ("column", "kind", "options", "said"),
    [
        (
            "key",
            pa.binary(),
            {"type": "log"},
            r"column key, row 1 for topic 't': b'\\xff\\xfe' is not UTF-8; as the tag",
        ),
        ("key", pa.binary(), {}, r"column key, row 1 .*option type queue"),
        ("key", pa.string(), {"type": "queue"}, r"column key, row 1 .*is not UTF-8"),
        ("tag", pa.string(), {"type": "queue"}, r"column tag, row 1 .*is not UTF-8"),
        ("meta", pa.string(), {}, r"column meta, row 1 .*is not UTF-8"),
    ],
)
def test_a_text_that_is_not_utf8_is_refused(column: str, kind: pa.DataType, options: dict[str, str], said: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"1", b"2"]), _not_utf8(kind)], names=["value", column])
    with pytest.raises(EskerSparkError, match=said):
        prepared(batch, write_options({"topic": "t", **options}))


def test_the_key_of_a_job_may_be_bytes_and_a_payload_as_well() -> None:
    batch = pa.RecordBatch.from_arrays([_not_utf8(pa.binary())] * 2, names=["value", "key"])
    ready = prepared(batch, write_options({"topic": "t", "type": "queue"}))
    assert ready.column("key").to_pylist() == ready.column("value").to_pylist() == [b"ok", b"\xff\xfe"]


def test_on_spark_connect_a_batch_needs_the_name_of_its_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect says no id of a query. That is known before a query starts, by the mark that Connect itself sets."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with pytest.raises(EskerSparkError, match="give load="):
        foreach_batch("t")
    assert foreach_batch("t", load="totals") is not None

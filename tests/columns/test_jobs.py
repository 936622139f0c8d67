"""Jobs as columns: what each tells, its type, and how batches are bounded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from esker.columns import arrow, jobids, jobs
from esker.columns.jobs import FIELDS, Source, batches, write_chunk
from esker.engine.commands import Details
from esker.engine.ids import TOPIC_MASK, message_id, to_ulid
from esker.engine.limits import SEQ_MAX
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.snapshot import Piece, Selection
from esker.errors import InvariantBroken
from tests.columns.streams import whole

MADE_MS = 1_700_000_000_000
TOPIC = 77


class Payloads:
    """A pin."""

    def payloads(self, topic: int, partition: int, seqs: Sequence[int]) -> list[bytes]:
        return [b"%d/%d/%d" % (topic, partition, seq) for seq in seqs]


def job(seq: int, payload: bytes | None = b"work", **fields: object) -> Job:
    made = Job(
        seq, MADE_MS + seq, 0, 30_000, 0, 0, 0, 0, 0, 0, 0, 4 if payload is None else len(payload), None, payload
    )
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def piece(*made: Job, partition: int = 0, holders: dict[int, bytes] | None = None) -> Piece:
    return Piece(partition, list(made), holders or {}, Payloads(), {})


def source(columns: Sequence[str] | None = None, wanted: Selection | None = None) -> Source:
    return Source(b"q", TOPIC, wanted or Selection(), columns)


def rows(of: Source, *pieces: Piece) -> list[dict[str, object]]:
    return [row for batch in batches(of, pieces) for row in batch.to_pylist()]


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def test_every_column_says_what_the_job_is(tmp_path: Path) -> None:
    details = Details(tag=b"t", node=b"n\xff", meta=b'{"a":1}', key=b"k")
    leased = job(
        5, b"\x00\xff", priority=-7, state=int(JobState.LEASED), due_ms=MADE_MS + 9, expires_ms=MADE_MS + 99,
        token=0xABC, attempts=3, nacks=2, requeues=1, details=details,
    )  # fmt: skip
    path = tmp_path / "chunk"
    assert write_chunk(path, source(), [piece(job(4), leased, partition=2, holders={5: b"worker"})]) == 2
    plain, full = whole(path.read_bytes())
    assert full == {
        "message_id": to_ulid(message_id(MADE_MS + 5, TOPIC, 2, 5)), "topic": "q", "partition": 2, "offset": 5,
        "state": "leased", "priority": -7, "attempts": 3, "nacks": 2, "requeues": 1, "created": at(MADE_MS + 5),
        "due": at(MADE_MS + 9), "expires": at(MADE_MS + 99), "lease": "abc", "holder": "worker", "tag": "t",
        "node": "n\\xff", "meta": '{"a":1}', "key": "k", "value": b"\x00\xff", "size": 2,
    }  # fmt: skip
    assert list(full) == list(FIELDS)
    absent = {name for name, value in plain.items() if value is None}
    assert absent == {name for name, field in FIELDS.items() if field.nullable}


def test_columns_come_in_the_order_they_are_asked_for() -> None:
    (found,) = rows(source(["size", "offset"]), piece(job(1)))
    assert list(found.items()) == [("size", 4), ("offset", 1)]


def test_without_the_value_no_payload_is_read() -> None:
    unread = Piece(0, [job(1, None)], {}, None, {})
    assert rows(source(["offset"]), unread) == [{"offset": 1}]
    with pytest.raises(AssertionError, match="without a pin"):
        rows(source(["value"]), unread)


def test_cold_payloads_come_from_the_pin_of_their_job() -> None:
    class Other(Payloads):
        def payloads(self, topic: int, partition: int, seqs: Sequence[int]) -> list[bytes]:
            return [b"other" for _ in seqs]

    cold = [job(seq, None, size=6) for seq in (1, 4)]
    mixed = Piece(3, [cold[0], job(2, b"hot"), job(9, None, size=5), cold[1]], {}, Payloads(), {9: Other()})
    assert [row["value"] for row in rows(source(["value"]), mixed)] == [b"77/3/1", b"hot", b"other", b"77/3/4"]


def test_a_batch_is_bounded_in_rows_and_in_bytes_and_has_one_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "BATCH_ROWS", 4)
    monkeypatch.setattr(arrow, "BATCH_BYTES", 10)
    pieces = [
        piece(job(1, b"123"), job(2, b"456")),
        piece(job(3, b"789")),
        piece(job(4, b"0123456789abc"), job(5, b"x")),
        piece(job(6, b"y"), partition=1),
    ]
    found = [batch.column("offset").to_pylist() for batch in batches(source(), pieces)]
    assert found == [[1, 2, 3], [4], [5], [6]]
    without = [batch.column("offset").to_pylist() for batch in batches(source(["offset"]), pieces)]
    assert without == [[1, 2, 3], [4, 5], [6]]


def test_jobs_that_are_not_wanted_leave_no_empty_batches(tmp_path: Path) -> None:
    assert list(batches(source(wanted=Selection(priority_min=1)), [piece(job(1)), piece(job(2))])) == []
    write_chunk(tmp_path / "empty", source(), [])
    assert whole((tmp_path / "empty").read_bytes()) == []


@pytest.mark.parametrize("base", [1, 32_700, 65_536 - 3, (1 << 30) - 100, (1 << 45) - 2, SEQ_MAX - 199])
@pytest.mark.parametrize(("topic", "partition"), [(TOPIC, 1023), (1, 0), (TOPIC_MASK, 512)])
def test_ids_joined_are_the_ids_one_by_one(base: int, topic: int, partition: int) -> None:
    dice = Random(base)
    seqs = [base + step for step in range(200)]
    for spread in (0, 3, 1 << 40):
        made = [MADE_MS + dice.randint(0, spread) for _ in seqs]
        joined = jobids.joined(topic, partition, np.array(seqs), np.array(made)).decode()
        ids = [joined[start : start + 26] for start in range(0, len(joined), 26)]
        assert ids == [to_ulid(message_id(ms, topic, partition, seq)) for seq, ms in zip(seqs, made, strict=True)]
        dice.shuffle(seqs)


def test_what_only_some_jobs_have_is_told_of_these_and_of_no_other() -> None:
    dice = Random(6)
    fields: list[dict[str, object]] = [
        {},
        {"state": int(JobState.LEASED), "due_ms": MADE_MS + 1, "token": 0xF00, "attempts": 1},
        {"state": int(JobState.DELAYED), "due_ms": MADE_MS + 2},
        {"state": int(JobState.WITHDRAWN), "due_ms": MADE_MS + 3},
        {"attempts": 2},
        {"nacks": 3},
        {"requeues": 4},
        {"expires_ms": MADE_MS + 5},
        {"details": Details(tag=b"t")},
        {"details": Details(key=b"k")},
        {"details": Details()},
    ]
    for share in (0.01, 0.5, 1.0):
        made = [job(seq, b"work", **(dice.choice(fields) if dice.random() < share else {})) for seq in range(300)]
        holders = {one.seq: b"w%d" % one.seq for one in made if one.token and one.seq % 2}
        pieces = [piece(*made[start : start + 100], holders=holders) for start in (0, 100, 200)]
        found = rows(source(), *pieces)
        assert [row["offset"] for row in found] == list(range(300))
        for row, one in zip(found, made, strict=True):
            details = one.details or Details()
            assert (row["state"], row["attempts"], row["nacks"], row["requeues"]) == (
                JobState(one.state).name.lower(), one.attempts, one.nacks, one.requeues
            )  # fmt: skip
            assert row["due"] == (at(one.due_ms) if one.due_ms else None)
            assert row["expires"] == (at(one.expires_ms) if one.expires_ms else None)
            assert row["lease"] == (f"{one.token:x}" if one.token else None)
            assert row["holder"] == (f"w{one.seq}" if one.seq in holders else None)
            assert (row["tag"], row["key"]) == (details.tag.decode() or None, details.key.decode() or None)


def test_payloads_of_another_length_than_their_jobs_say_are_refused() -> None:
    with pytest.raises(InvariantBroken, match="not as long"):
        rows(source(["value"]), piece(job(1, b"work", size=3)))


def test_payloads_of_every_length_are_told() -> None:
    dice = Random(7)
    payloads = [dice.randbytes(dice.choice((0, 0, 1, 7, 300))) for _ in range(500)]
    made = [job(seq, payload) for seq, payload in enumerate(payloads)]
    found = rows(source(["value", "size"]), piece(*made[:200]), piece(*made[200:]))
    assert found == [{"value": payload, "size": len(payload)} for payload in payloads]


def test_room_is_asked_for_before_anything_is_written(tmp_path: Path) -> None:
    asked: list[int] = []

    def refuse(size: int) -> None:
        asked.append(size)
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        write_chunk(tmp_path / "chunk", source(["value"]), [piece(job(1, bytes(5000)))], refuse)
    (size,) = asked
    assert size >= 5000 > (tmp_path / "chunk").stat().st_size


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(arrow.UnknownColumn, match="no column 'colour'"):
        source(["offset", "colour"])


def test_types_are_those_that_readers_were_promised() -> None:
    schema = source().schema
    assert schema.field("created").type == pa.timestamp("us", tz="UTC")
    assert {schema.field(name).type for name in ("partition", "attempts", "nacks", "requeues")} == {pa.int32()}
    assert {schema.field(name).type for name in ("offset", "priority", "size")} == {pa.int64()}
    assert schema.field("value").type == pa.binary()

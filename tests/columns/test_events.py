"""Events as columns: ids are right however they are made, and a row is the same however it is asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import pyarrow as pa
import pytest

from esker.archive.history import events_files
from esker.archive.parquet import FileWriter, Kind
from esker.columns.arrow import END, schema_piece
from esker.columns.eventfiles import events_of
from esker.columns.eventkinds import MAKERS
from esker.columns.eventnames import Names
from esker.columns.events import SCHEMA, EventColumns, schema_of
from esker.columns.eventwish import COLUMNS, EVERYTHING, KINDS, Wanted
from esker.columns.jobids import JobIds
from esker.engine import events
from esker.engine.commands import CreateTopic, Details, Nack
from esker.engine.config import Discard, TopicConfig
from esker.engine.ids import message_id, to_ulid
from esker.engine.limits import SEQ_MAX
from esker.engine.queues.lifecycle import moves_of
from tests.engine.rig import Rig

NOW = 1_790_000_000_000


def test_every_event_has_its_columns() -> None:
    assert set(MAKERS) == set(events.Event.__args__)
    assert tuple(SCHEMA.names) == COLUMNS


def test_ids_are_those_of_the_engine() -> None:
    dice = Random(5)
    ids = JobIds()
    made: dict[tuple[int, int, int], int] = {}
    for topic, partition in ((1, 0), (0xFFFFFF, 1023), (7, 3)):
        seq = dice.choice((1, 32_760, SEQ_MAX - 200_000))
        for _ in range(50):
            count, ms = dice.randrange(1, 60), NOW + dice.randrange(1000)
            ids.made(topic, partition, seq, ms, count)
            run = ids.run(topic, partition, seq, ms, count)
            assert run == [to_ulid(message_id(ms, topic, partition, each)) for each in range(seq, seq + count)]
            made.update({(topic, partition, each): ms for each in range(seq, seq + count)})
            seq += count + dice.choice((0, 0, 0, 5, 4096))
        ids.made(topic, partition, 1 << 30, NOW)  # one far ahead, and one far behind
        ids.made(topic, partition, 0, NOW + 1)
        made |= {(topic, partition, 1 << 30): NOW, (topic, partition, 0): NOW + 1}
    places = [*made, (1, 0, 1 << 40), (99, 0, 1)]
    dice.shuffle(places)
    wanted = [to_ulid(message_id(made[place], *place)) if place in made else None for place in places]
    assert ids.of(places) == wanted


def _story() -> list[tuple[int, list[events.Event]]]:
    odd = Details(tag=b"\xff\xfe", node="ü".encode(), max_deliveries=2)
    first = events.Enqueued(4, 0, 1, NOW, -9, 0, NOW + 5, NOW + 2, b"x", odd)
    return [
        (1, [first, events.JobLeased(4, 0, 1, NOW, 255, 0, 1, b"")]),
        (2, []),
        (3, [events.SeqReserved(4, 0, 5000), events.JobsEnqueued(4, 0, 2, NOW + 1, 1000, 0, [b"a", b"b", b"c"])]),
        (4, [events.JobAcked(4, 0, 2, NOW + 2), events.JobAcked(4, 0, 3, NOW + 2, 255)]),
        (5, [events.JobAcked(5, 0, 77, NOW + 3), events.RouterDropped(1, NOW + 3)]),
    ]  # fmt: skip


def _rows(wanted: Wanted, passed_over: int = 0) -> list[dict[str, object]]:
    names = Names()
    names.topic_is(4, b"q\xff")
    columns = EventColumns(names, wanted)
    rows: list[dict[str, object]] = []
    for position, happened in _story():
        if position <= passed_over:
            columns.pass_over(happened)
        else:
            columns.add(position, happened)
            rows += columns.take().to_pylist()
    return rows


def test_rows_tell_odd_bytes_and_missing_facts() -> None:
    first, leased, reserved, *alike, unfenced, fenced, stranger, dropped = _rows(EVERYTHING)
    assert (first["topic"], first["tag"], first["node"], first["priority"]) == ("q\\xff", "\\xff\\xfe", "ü", -9)
    assert first["detail"] == '{"retry_ms":0,"max_deliveries":2}'
    assert (leased["lease"], leased["due"], leased["node"]) == ("ff", None, None)
    assert reserved["time"] == alike[0]["time"]
    assert [row["seq"] for row in alike] == [2, 3, 4]
    assert [row["ordinal"] for row in alike] == [1, 2, 3]
    assert (unfenced["lease"], fenced["lease"]) == (None, "ff")
    assert fenced["message_id"] == alike[1]["message_id"]
    assert (stranger["topic"], stranger["message_id"]) == ("5", None)
    assert (dropped["topic"], dropped["reason"]) == (None, "1")


def test_a_row_is_the_same_whatever_else_is_asked_for() -> None:
    rows = _rows(EVERYTHING)
    assert _rows(EVERYTHING, passed_over=3) == [row for row in rows if int(str(row["position"])) > 3]
    narrow = Wanted(("lease", "message_id"), frozenset({"JobAcked"}), frozenset({b"q\xff"}))
    assert _rows(narrow) == [
        {"lease": row["lease"], "message_id": row["message_id"]}
        for row in rows
        if row["kind"] == "JobAcked" and row["topic_number"] == 4
    ]
    plain = tuple(name for name in COLUMNS if name != "message_id")
    assert _rows(Wanted(plain)) == [{name: row[name] for name in plain} for row in rows]


def test_what_was_leased_or_acked_together_has_the_rows_it_would_have_had_apart() -> None:
    made = events.JobsEnqueued(4, 0, 1, NOW, 1000, 0, [b"a", b"b", b"c"])
    together: list[list[events.Event]] = [
        [events.JobsLeased(4, 0, NOW + 1, 255, NOW + 50, b"w", [3, 1, 2], [1, 7, 2]), events.TopicDeleted(6, NOW + 1)],
        [events.JobsLeased(4, 0, NOW + 2, 9, NOW + 60, b"", [2, 9], [3, 1]), events.JobAcked(4, 0, 9, NOW + 2)],
        [events.JobsAcked(4, 0, NOW + 3, [2, 1], [9, 256]), events.JobsAcked(4, 0, NOW + 3, [3, 77], [])],
    ]
    apart: list[list[events.Event]] = [
        [each for event in batch for each in moves_of(event) or (event,)] for batch in together
    ]
    told: list[list[dict[str, object]]] = []
    for history in (together, apart):
        names = Names()
        names.topic_is(4, b"q")
        columns = EventColumns(names)
        columns.add(1, [made])
        for position, batch in enumerate(history, 2):
            columns.add(position, batch)
        told.append(columns.take().to_pylist())
    assert told[0] == told[1]
    assert [row["kind"] for row in told[0]][3:] == ["JobLeased"] * 3 + ["TopicDeleted"] + ["JobLeased"] * 2 + [
        "JobAcked"
    ] * 5
    assert [row["lease"] for row in told[0] if row["kind"] == "JobLeased"] == ["ff", "100", "101", "9", "a"]
    assert [row["ordinal"] for row in told[0] if row["position"] == 2] == [0, 1, 2, 3]
    assert "JobsLeased" not in KINDS
    assert "JobsAcked" not in KINDS


def test_a_key_with_prefixes_sees_no_topic_whose_name_is_unknown() -> None:
    for prefix in (b"q", b"5", b"z"):
        found = {row["topic"] for row in _rows(Wanted(prefixes=(prefix,)))}
        assert found == ({"q\\xff"} if prefix == b"q" else set())


def _from_file(data: bytes, wanted: Wanted, start: int = 0, end: int = 1 << 62) -> list[dict[str, object]]:
    schema = schema_piece(schema_of(wanted))
    messages = b"".join(events_of("file", data, wanted, start, end))
    with pa.ipc.open_stream(schema + messages + END) as reader:
        rows: list[dict[str, object]] = reader.read_all().to_pylist()
    return rows


def _file() -> bytes:
    names = Names()
    names.topic_is(4, b"q\xff")
    batches = [(position, events.encode_batch(happened)) for position, happened in _story()]
    (file,) = events_files(batches, names)
    return file.data


@pytest.mark.parametrize(
    "wanted",
    [
        EVERYTHING,
        Wanted(("seq", "due", "kind")),
        Wanted(kinds=frozenset({"JobAcked", "RouterDropped"})),
        Wanted(topics=frozenset({b"q\xff"})),
        Wanted(prefixes=(b"q",)),
        Wanted(prefixes=(b"5", b"z")),
    ],
)
def test_a_file_of_the_archive_tells_what_the_journal_told(wanted: Wanted) -> None:
    assert _from_file(_file(), wanted) == _rows(wanted)


def test_a_part_of_a_file_is_the_rows_of_those_positions() -> None:
    rows = [row for row in _rows(EVERYTHING) if row["position"] in (3, 4)]
    assert _from_file(_file(), EVERYTHING, 2, 5) == rows


def test_files_of_the_first_format_are_still_read() -> None:
    kinds = dict.fromkeys(COLUMNS[: COLUMNS.index("due")], Kind.TEXT)
    numbers = ("position", "ordinal", "topic_number", "partition", "seq", "priority", "attempts")
    kinds |= dict.fromkeys(numbers, Kind.NUMBER) | {"time": Kind.TIME}
    writer = FileWriter(kinds, sorted_by=["position", "ordinal"])
    row: dict[str, list[int] | list[str] | list[None]] = {name: [None] for name in kinds}
    writer.add(
        {**row, "position": [9], "ordinal": [0], "time": [NOW], "kind": ["JobAcked"], "topic": ["q"], "seq": [3]}
    )
    (told,) = _from_file(writer.finish({"esker.format": "1"}).data, EVERYTHING)
    assert (told["position"], told["kind"], told["topic"], told["seq"]) == (9, "JobAcked", "q", 3)
    assert told["time"] == datetime.fromtimestamp(NOW / 1000, UTC)
    assert [told[name] for name in COLUMNS[COLUMNS.index("due") :]] == [None] * 5


def test_a_delivery_past_the_limit_says_why() -> None:
    rig = Rig(TopicConfig(max_deliveries=1, dead_letter=b"grave"))
    rig.do(CreateTopic(b"grave", TopicConfig(cap_records=1, discard=Discard.REJECT)))
    rig.add(topic=b"grave")
    rig.add()
    for _ in range(2):
        (leased,) = rig.lease(1)
        rig.do(Nack([leased.id], [leased.token]))
    columns = EventColumns(Names())
    for position, batch in enumerate(rig.batches, 1):
        columns.add(position, events.decode_batch(batch))
    told = [(row["attempts"], row["reason"]) for row in columns.take().to_pylist() if row["kind"] == "JobLeased"]
    assert told == [(1, None), (2, "no_dead_letter")]

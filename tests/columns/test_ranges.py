"""Ranges of a log as columns, wherever its records are: what they hold, what they tell of what is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from esker.archive.interface import ArchiveStore
from esker.archive.local import LocalArchive
from esker.columns.arrow import UnknownColumn
from esker.engine.commands import Append, DeleteRecords, DeleteTopic, NewRecord, PutTopic
from esker.engine.logs.gaps import Gap
from esker.node.ranges import Chunk, RangeLost, RangeRefused, Ranges, RangeWish, Room, captured
from tests.archive.tiers import EVERYTHING, TOPIC, Crash, Keeps, Tiers
from tests.columns.streams import Bulk, shown, whole


@pytest.fixture
def archive(tmp_path: Path) -> ArchiveStore:
    return LocalArchive(tmp_path / "archive")


def _spread(archive: ArchiveStore) -> Tiers:
    """Three files, some blocks in the store, the last in memory."""
    tiers = Tiers(archive)
    for _ in range(3):
        tiers.append(400)
        tiers.settle()
    tiers.append(300)
    for block in tiers.log.blocks[:-1]:
        tiers.log.cool(block)
    return tiers


def _seqs(rows: list[dict[str, object]]) -> list[object]:
    return [row["offset"] for row in rows]


def _diffed(tiers: Tiers) -> list[dict[str, object]]:
    return [shown(record) for page in tiers.read_all(300, frozenset(), 1 << 20) for record in page.records]


def test_a_range_holds_what_diff_gives_from_every_tier(archive: ArchiveStore) -> None:
    tiers = _spread(archive)
    tiers.both(DeleteRecords(TOPIC, None, b"t1"))
    assert len(tiers.log.files.all) == 3
    assert {tiers.log.in_archive(block) for block in tiers.log.blocks} == {True, False}
    rows, gaps = Bulk(tiers).read()
    assert rows == _diffed(tiers)
    assert gaps == []
    assert rows == Bulk(tiers).read()[0], "and again"


@pytest.mark.parametrize("names", [("value",), ("value", "offset"), ("meta", "tag", "node", "timestamp")])
def test_only_the_columns_that_were_asked_for_come(archive: ArchiveStore, names: tuple[str, ...]) -> None:
    tiers = _spread(archive)
    rows, _ = Bulk(tiers).read(RangeWish(TOPIC, columns=names))
    assert rows == [{name: row[name] for name in names} for row in _diffed(tiers)]


@pytest.mark.parametrize("names", [("nope",), ("value", "value"), ()])
def test_columns_that_are_not_there_are_refused(archive: ArchiveStore, names: tuple[str, ...]) -> None:
    with pytest.raises(UnknownColumn):
        Bulk(_spread(archive)).read(RangeWish(TOPIC, columns=names))


@pytest.mark.parametrize(
    ("first", "end"), [(1, 1), (1, 2), (256, 258), (300, 301), (390, 1000), (1499, 1501), (1501, 1501)]
)
def test_ends_are_exact(archive: ArchiveStore, first: int, end: int) -> None:
    tiers = _spread(archive)
    rows, _ = Bulk(tiers).read(RangeWish(TOPIC, first, end))
    assert _seqs(rows) == list(range(first, end))


def test_tags_and_nodes_can_be_left_out(archive: ArchiveStore) -> None:
    tiers = _spread(archive)
    everything = _diffed(tiers)
    rows, _ = Bulk(tiers).read(RangeWish(TOPIC, tag_prefix=b"t", columns=("offset",)))
    assert _seqs(rows) == [row["offset"] for row in everything if row["tag"]]
    rows, _ = Bulk(tiers).read(RangeWish(TOPIC, tag_prefix=b"t1", without_nodes=frozenset({b"n1", b"n2"})))
    assert rows == [row for row in everything if row["tag"] == "t1" and row["node"] == "n0"]
    assert rows
    assert Bulk(tiers).read(RangeWish(TOPIC, tag_prefix=b"nothing"))[0] == []


def test_times_narrow_a_range(archive: ArchiveStore) -> None:
    tiers = _spread(archive)
    everything = _diffed(tiers)
    stamps = sorted({row["timestamp"] for row in everything})  # type: ignore[type-var]
    since, until = stamps[1], stamps[3]
    assert isinstance(since, int)
    assert isinstance(until, int)
    rows, _ = Bulk(tiers).read(RangeWish(TOPIC, since_ms=since, until_ms=until))
    assert rows == [row for row in everything if since <= row["timestamp"] < until]  # type: ignore[operator]
    assert rows
    assert Bulk(tiers).read(RangeWish(TOPIC, since_ms=until + 1000))[0] == []
    assert Bulk(tiers).read(RangeWish(TOPIC, until_ms=since - 1000))[0] == []


def test_what_is_no_text_is_shown_by_backslashes(archive: ArchiveStore) -> None:
    tiers = Tiers(archive)
    odd = NewRecord(b"1", tag=b"\xff\x00", node=b"n\xfe", meta=b'{"k":"\xfd"}')
    tiers.both(Append(TOPIC, [odd, NewRecord(b"2", tag=b"t")]))
    wanted = [("\\xff\x00", "n\\xfe", '{"k":"\\xfd"}'), ("t", None, None)]
    assert [(row["tag"], row["node"], row["meta"]) for row in Bulk(tiers).read()[0]] == wanted
    tiers.append(600)
    tiers.settle()
    assert tiers.log.files.all
    assert [(row["tag"], row["node"], row["meta"]) for row in Bulk(tiers).read()[0][:2]] == wanted


# -- what is gone


def test_deleted_records_are_left_out_in_silence(archive: ArchiveStore) -> None:
    tiers = _spread(archive)
    tiers.both(DeleteRecords(TOPIC, 700, b"t3"))
    tiers.both(DeleteRecords(TOPIC, 11))
    rows, gaps = Bulk(tiers).read(RangeWish(TOPIC))
    assert rows == _diffed(tiers)
    assert gaps == []


def test_what_a_cap_took_is_a_gap(archive: ArchiveStore) -> None:
    tiers = Tiers(archive, keeps=Keeps(records=500))
    tiers.append(800)
    with pytest.raises(RangeRefused) as refused:
        Bulk(tiers).read(RangeWish(TOPIC))
    assert refused.value.code == "data_loss"
    assert refused.value.detail["gaps"] == [{"first": 1, "last": 300, "reason": "cap"}]
    rows, gaps = Bulk(tiers).read(RangeWish(TOPIC, first=100, skip_gaps=True))
    assert gaps == [Gap(100, 300, "cap")]
    assert _seqs(rows) == list(range(301, 801))
    assert Bulk(tiers).read(RangeWish(TOPIC, first=301))[1] == [], "behind the gap nothing is missing"
    assert Bulk(tiers).read(RangeWish(TOPIC, 10, 20, skip_gaps=True)) == ([], [Gap(10, 19, "cap")])


def test_what_is_too_old_is_a_gap_before_anybody_notices(archive: ArchiveStore) -> None:
    tiers = Tiers(archive, keeps=Keeps(ms=1000))
    tiers.append(10)
    tiers.now += 500
    tiers.append(10)
    tiers.now += 600
    rows, gaps = Bulk(tiers).read()
    assert gaps == [Gap(1, 10, "ttl")]
    assert _seqs(rows) == list(range(11, 21))


def test_a_gap_within_the_times_asked_for_counts(archive: ArchiveStore) -> None:
    tiers = Tiers(archive, keeps=Keeps(records=500))
    tiers.append(400)
    since = tiers.now
    tiers.append(400)
    with pytest.raises(RangeRefused):  # records 1 to 300 are gone, and nobody knows when they came
        Bulk(tiers).read(RangeWish(TOPIC, since_ms=since - 10))
    assert _seqs(Bulk(tiers).read(RangeWish(TOPIC, since_ms=since))[0]) == list(range(401, 801))


def test_a_range_of_another_epoch_is_refused(archive: ArchiveStore) -> None:
    tiers = _spread(archive)
    number = tiers.log.topic.number
    assert Bulk(tiers).read(RangeWish(TOPIC, epoch=number))[0]
    with pytest.raises(RangeRefused) as refused:
        Bulk(tiers).read(RangeWish(TOPIC, epoch=number + 1))
    assert (refused.value.code, refused.value.detail["epoch"]) == ("stale_epoch", number)


# -- while it is read


async def _pieces(ranges: Ranges, wish: RangeWish, after_first: object) -> bytes:
    data = b""
    async for piece in ranges.open(wish).pieces():
        data += piece
        if callable(after_first):
            after_first()
            after_first = None
    return data


def _read_slowly(tiers: Tiers, monkeypatch: pytest.MonkeyPatch, meanwhile: object) -> list[dict[str, object]]:
    """Reads in chunks of 300 records; when the first is sent and the next is made, something happens."""
    monkeypatch.setattr("esker.node.ranges.Range._next.__defaults__", (Room(rows=300),))
    return whole(Bulk(tiers).run(lambda ranges: _pieces(ranges, RangeWish(TOPIC), meanwhile)))


def test_a_chunk_never_mixes_places_nor_passes_its_room(archive: ArchiveStore) -> None:
    tiers = _spread(archive)
    after, chunks = 0, list[Chunk]()
    while after < 1500:
        chunks.append(captured(tiers.log, after, 1500, Room(rows=300)))
        after = chunks[-1].last
    assert {len(chunk.file) > 0 for chunk in chunks} == {True, False}
    for chunk in chunks:
        assert sum(held.live.bit_count() for held in chunk.blocks) <= 300
        for file in tiers.log.files.all:
            within = {file.first <= held.first_seq <= file.last for held in chunk.blocks}
            assert within == {file.path == chunk.file}
    small = captured(tiers.log, 1300, 1500, Room(bytes=1))
    assert small.blocks, "one block always fits"


def test_records_lost_while_they_are_read_cut_the_stream(
    archive: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers = Tiers(archive, keeps=Keeps(records=2000))
    tiers.append(2000)
    with pytest.raises(RangeLost):
        _read_slowly(tiers, monkeypatch, lambda: tiers.append(1500))


def test_a_topic_that_goes_while_it_is_read_cuts_the_stream(
    archive: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers = _spread(archive)

    def made_again() -> None:
        tiers.handle(DeleteTopic(TOPIC))
        tiers.handle(PutTopic(TOPIC, EVERYTHING.config()))

    with pytest.raises(RangeLost):
        _read_slowly(tiers, monkeypatch, made_again)


def test_records_that_move_while_they_are_read_are_found(
    archive: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers = Tiers(archive)
    tiers.append(2000)
    tiers.checkpoint()
    for block in tiers.log.blocks[:-1]:
        tiers.log.cool(block)
    rows = _read_slowly(tiers, monkeypatch, tiers.settle)
    assert tiers.log.files.all
    assert _seqs(rows) == list(range(1, 2001))


def test_records_deleted_and_emptied_meanwhile_do_no_harm(
    archive: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers = Tiers(archive)
    tiers.append(1000)

    def deleted() -> None:
        tiers.both(DeleteRecords(TOPIC, None, b"t1"))
        tiers.checkpoint()
        tiers.checkpoint()

    rows = _read_slowly(tiers, monkeypatch, deleted)
    assert all(row["value"] for row in rows)
    assert {1, 2, 3} <= {row["offset"] for row in rows}


# -- whatever was done

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 600)),
        st.tuples(st.just("tag"), st.integers(0, 4)),
        st.tuples(st.just("below"), st.integers(1, 1500)),
        st.tuples(st.sampled_from(["checkpoint", "move", "cool", "crash"]), st.just(0)),
        st.tuples(st.just("pass"), st.integers(1, 3000)),
    ),
    min_size=1,
    max_size=12,
)


def _do(tiers: Tiers, step: str, number: int) -> None:
    if step == "append":
        tiers.append(number)
    elif step == "tag":
        tiers.both(DeleteRecords(TOPIC, None, b"t%d" % number))
    elif step == "below":
        tiers.both(DeleteRecords(TOPIC, number))
    elif step == "checkpoint":
        tiers.checkpoint()
    elif step == "move":
        tiers.settle()
    elif step == "crash":
        tiers.crash()
    elif step == "cool":
        for block in tiers.log.blocks[:-1]:
            tiers.log.cool(block)
    else:
        tiers.now += number


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keeps=st.builds(Keeps, st.sampled_from([0, 700]), st.sampled_from([0, 20_000]), st.sampled_from([0, 4000])),
    steps=_STEPS,
    window=st.tuples(st.integers(1, 2000), st.integers(0, 2000), st.integers(0, 3000), st.integers(0, 3000)),
)
def test_a_range_is_the_union_of_diff_pages(
    tmp_path_factory: pytest.TempPathFactory,
    keeps: Keeps,
    steps: list[tuple[str, int]],
    window: tuple[int, int, int, int],
) -> None:
    tiers = Tiers(LocalArchive(tmp_path_factory.mktemp("archive")), keeps=keeps)
    began = tiers.now
    for step, number in steps:
        try:
            _do(tiers, step, number)
        except Crash:
            raise AssertionError("no crash was asked for") from None
    pages = list(tiers.read_all(300, frozenset(), 1 << 20))
    diffed = [shown(record) for page in pages for record in page.records]
    told = {
        seq
        for page in pages
        if page.tombstone is not None
        for seq in range(page.tombstone.gap_from, page.tombstone.gap_to + 1)
    }
    rows, gaps = Bulk(tiers).read()
    assert rows == diffed
    lost = {seq for gap in gaps for seq in range(gap.first, gap.last + 1)}
    assert lost <= told, "whatever is told as lost, diff tells too"
    assert bool(lost) == bool(told)
    first, length, since, span = window
    end = min(first + length, tiers.log.next_seq)
    if first <= end:
        wish = RangeWish(TOPIC, first, end, since_ms=began + since, until_ms=began + since + span, skip_gaps=True)
        wanted = [
            row
            for row in diffed
            if first <= row["offset"] < end and began + since <= row["timestamp"] < began + since + span  # type: ignore[operator]
        ]
        assert Bulk(tiers).read(wish)[0] == wanted

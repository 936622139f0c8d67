"""Readers do not notice where records are: store, memory and archive give what memory alone would."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from esker.archive.interface import ArchiveStore
from esker.archive.paths import RECORDS
from esker.engine.commands import ArchiveRecords, DeleteRecords, DropTopic, Forward, PutRouter, PutTopic, Read
from esker.engine.config import Discard, Durability, RouterOptions, TopicConfig, TopicType
from esker.engine.replies import Deleted, Records
from esker.errors import ArchiveError, Refusal
from tests.archive.tiers import EVERYTHING, TOPIC, Crash, Keeps, Tiers


def test_a_read_goes_over_the_border_as_if_there_was_none(archive: ArchiveStore) -> None:
    tiers = Tiers(archive)
    tiers.append(1000)
    tiers.settle()
    tiers.append(500)
    assert tiers.log.files.upto == 768
    assert tiers.bodies_in_store() == 1
    for limit in (1, 7, 256, 300, 1000):
        assert tiers.agree(limit) == list(range(1, 1501))
    tiers.agree(100, nodes=frozenset({b"n1", b"n2"}))
    tiers.agree(1000, nodes=frozenset({b"n0", b"n1", b"n2"}))
    for max_bytes in (1, 25, 1000):
        tiers.agree(1000, max_bytes=max_bytes)


def test_files_follow_one_another_and_reads_pass_from_one_to_the_next(folder: ArchiveStore) -> None:
    tiers = Tiers(folder)
    for _ in range(4):
        tiers.append(600)
        tiers.settle()
    assert len(tiers.log.files.all) == 4
    (reply,) = list(tiers.read_all(1000, frozenset(), 1 << 20, after=1500))
    assert [record.seq for record in reply.records] == list(range(1501, 2401))
    assert reply.files_read == 2
    tiers.agree()


def test_the_archive_gets_nothing_new_nor_what_is_young_and_fills_no_file(folder: ArchiveStore) -> None:
    tiers = Tiers(folder, hot=2)
    tiers.append(256 * 4)
    assert tiers.move() == 0, "the store does not have it yet"
    tiers.checkpoint()
    assert tiers.move(after_s=3600) == 0
    tiers.now += 3_600_000
    tiers.handle(Read(TOPIC))
    assert tiers.move(after_s=3600) == 1
    assert tiers.log.files.upto == 512


def test_records_that_fill_a_file_go_at_once(folder: ArchiveStore) -> None:
    tiers = Tiers(folder)
    for _ in range(7):
        tiers.append(10_000)
    tiers.checkpoint()
    assert tiers.move(after_s=3600) == 1
    assert tiers.log.files.upto == 65_536


def test_what_was_deleted_before_is_not_in_the_file_and_after_is_not_shown(archive: ArchiveStore) -> None:
    tiers = Tiers(archive)
    tiers.append(1000)
    tiers.both(DeleteRecords(TOPIC, tag=b"t1"))
    tiers.settle()
    tiers.both(DeleteRecords(TOPIC, tag=b"t3"))
    tiers.both(DeleteRecords(TOPIC, tag=b"t", prefix=True, before_seq=500))
    tiers.both(DeleteRecords(TOPIC, before_seq=100))
    seqs = tiers.agree()
    assert seqs[0] >= 100
    tiers.settle()
    tiers.crash()
    assert tiers.agree() == seqs


def test_a_deleted_file_leaves_and_only_then(archive: ArchiveStore) -> None:
    tiers = Tiers(archive)
    for _ in range(3):
        tiers.append(512)
        tiers.settle()
    first, second, third = [file.path for file in tiers.log.files.all]
    tiers.both(DeleteRecords(TOPIC, before_seq=200))
    assert tiers.machine.cold_blocks.released == []
    reply = tiers.both(DeleteRecords(TOPIC, before_seq=700))
    assert isinstance(reply, Deleted)
    assert tiers.machine.cold_blocks.released == [first]
    tiers.checkpoint()
    tiers.remove_released()
    assert set(archive.names(RECORDS)) == {second, third}
    tiers.agree()
    tiers.crash()
    tiers.agree()


def test_a_file_in_the_middle_leaves_when_its_last_record_goes(folder: ArchiveStore) -> None:
    tiers = Tiers(folder)
    for _ in range(3):
        tiers.append(512)
        tiers.settle()
    middle = tiers.log.files.all[1]
    for machine in (tiers.machine, tiers.twin):
        log = machine.names[TOPIC].log
        assert log is not None
        log._remove_run(middle.first, middle.last)
        log._release(middle.first, middle.last)
    assert tiers.machine.cold_blocks.released == [middle.path]
    assert [file.first for file in tiers.log.files.all] == [1, middle.last + 1]
    tiers.agree()


@pytest.mark.parametrize("keeps", [Keeps(records=700), Keeps(bytes=9000), Keeps(ms=25)])
def test_caps_and_age_let_go_of_archived_records_to_the_record(folder: ArchiveStore, keeps: Keeps) -> None:
    tiers = Tiers(folder)
    for _ in range(5):
        tiers.append(400)
    tiers.settle()
    assert tiers.log.files.upto == 1792
    tiers.both(PutTopic(TOPIC, keeps.config()))
    for _ in range(6):
        tiers.append(33)
        tiers.agree()
    tiers.settle()
    tiers.crash()
    tiers.agree()


def test_a_dropped_topic_releases_all_its_files(folder: ArchiveStore) -> None:
    tiers = Tiers(folder)
    tiers.append(1000)
    tiers.settle()
    paths = [file.path for file in tiers.log.files.all]
    tiers.both(DropTopic(TOPIC))
    assert tiers.machine.cold_blocks.released == paths


def test_nothing_moves_before_every_router_has_passed_it(folder: ArchiveStore) -> None:
    tiers = Tiers(folder)
    tiers.both(PutTopic(b"copies", TopicConfig(type=TopicType.LOG, cap_records=600, discard=Discard.REJECT)))
    tiers.both(PutRouter(b"r", TOPIC, b"copies", RouterOptions()))
    for _ in range(2):
        tiers.append(600)
    tiers.both(Read(b"copies"))
    tiers.checkpoint()
    tiers.move()
    assert tiers.log.files.upto == 512, "the destination took 600 and refuses more"
    refused = tiers.handle(ArchiveRecords(tiers.log.topic.number, 513, 1024, "file"))
    assert isinstance(refused, Refusal)


def test_a_file_that_is_not_there_is_named(folder: ArchiveStore) -> None:
    tiers = Tiers(folder)
    tiers.append(1000)
    tiers.settle()
    (name,) = folder.names(RECORDS)
    folder.delete(name)
    with pytest.raises(ArchiveError, match="p0-0000000000000001"):
        list(tiers.read_all(10, frozenset(), 1000))


def test_a_damaged_file_is_named(folder: ArchiveStore) -> None:
    tiers = Tiers(folder)
    tiers.append(1000)
    tiers.settle()
    (name,) = folder.names(RECORDS)
    folder.put(name, b"PAR1 something else")
    with pytest.raises(ArchiveError, match="p0-0000000000000001"):
        list(tiers.read_all(10, frozenset(), 1000))


def test_a_crash_at_any_step_loses_nothing_and_doubles_nothing(folder: ArchiveStore) -> None:
    crashes = 0
    for steps in range(200):
        tiers = Tiers(folder)
        tiers.append(700)
        tiers.both(DeleteRecords(TOPIC, tag=b"t1"))
        tiers.steps_left = steps
        try:
            tiers.settle()
            tiers.both(DeleteRecords(TOPIC, tag=b"t3", before_seq=300))
            tiers.settle()
        except Crash:
            tiers.crash()
            crashes += 1
            if not _deleted_in_both(tiers):
                tiers.handle(DeleteRecords(TOPIC, tag=b"t3", before_seq=300))
            tiers.agree()
            tiers.settle()
            tiers.agree()
            assert set(folder.names(RECORDS)) == {file.path for file in tiers.log.files.all}
            assert tiers.bodies_in_store() == 1
        else:
            break
    assert 10 < crashes < 199


def test_copies_of_archived_records_are_made_again_after_a_crash_at_any_step(folder: ArchiveStore) -> None:
    crashes = 0
    for steps in range(100):
        tiers = Tiers(folder)
        tiers.both(PutTopic(b"copies", EVERYTHING.config()))
        tiers.both(PutRouter(b"r", TOPIC, b"copies", RouterOptions()))
        tiers.append(700)
        tiers.checkpoint()
        tiers.both(Forward())
        tiers.steps_left = steps
        try:
            tiers.move()
            tiers.checkpoint()
            tiers.checkpoint()
        except Crash:
            tiers.crash()
            crashes += 1
        else:
            tiers.steps_left = -1
        tiers.agree()
        for after in (0, 300, 600):
            tiers.both(Read(b"copies", after))
        if crashes <= steps:
            break
    assert 5 < crashes < 99


def _deleted_in_both(tiers: Tiers) -> bool:
    """The crash may have come between the twin's deletion and the log's."""
    twin = tiers.twin.names[TOPIC].log
    assert twin is not None
    return twin.count == tiers.log.count


@pytest.mark.parametrize("seed", range(6))
def test_any_history_reads_like_one_without_an_archive(folder: ArchiveStore, seed: int) -> None:
    dice = Random(seed)
    keeps = dice.choice([EVERYTHING, Keeps(records=900), Keeps(bytes=12_000), Keeps(ms=150)])
    tiers = Tiers(folder, dice.choice([1, 2]), keeps)
    for _ in range(40):
        match dice.randrange(8):
            case 0 | 1 | 2:
                tiers.append(dice.randrange(1, 400), dice.choice([4, 300]))
            case 3:
                tiers.settle()
            case 4:
                tiers.checkpoint()
                tiers.move()
            case 5:
                tiers.both(DeleteRecords(TOPIC, tag=b"t%d" % dice.randrange(5)))
            case 6:
                tiers.both(DeleteRecords(TOPIC, before_seq=dice.randrange(1, tiers.log.head_seq + 2)))
            case _:
                tiers.crash()
        reply = tiers.handle(Read(TOPIC))
        assert isinstance(reply, Records)
        tiers.agree(dice.choice([50, 1000]), frozenset(dice.sample([b"n0", b"n1"], dice.randrange(3))))
    assert set(folder.names(RECORDS)) >= {file.path for file in tiers.log.files.all}


def test_what_was_deleted_while_a_topic_was_ephemeral_is_in_the_store_before_the_rest_is_archived(
    folder: ArchiveStore,
) -> None:
    """No event tells of such a delete, so after a crash the records may be back: a file must not lack them then."""
    tiers = Tiers(folder)
    tiers.append(1000)
    tiers.checkpoint()
    tiers.both(PutTopic(TOPIC, replace(EVERYTHING.config(), durability=Durability.EPHEMERAL)))
    tiers.both(DeleteRecords(TOPIC, 3))
    tiers.both(PutTopic(TOPIC, EVERYTHING.config()))
    assert tiers.move() == 0
    tiers.checkpoint()
    assert tiers.move() == 1
    tiers.crash()
    assert tiers.agree() == list(range(3, 1001))

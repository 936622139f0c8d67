"""Arrow from outside: whatever the bytes are, they are refused in words or give rows that can be published."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from esker.columns import incoming
from esker.engine.commands import Append, Enqueue, EnqueueAlike
from esker.engine.config import TopicConfig, TopicType
from esker.errors import LoadRefused
from tests.loads import stream

QUEUE = TopicConfig(lease_ms=5000, ttl_ms=60_000)
LOG = TopicConfig(type=TopicType.LOG)
SEEDS = (
    stream({"value": ["1", "22", "{}"] * 3}, 4),
    stream({"value": [b"1", b"2"], "tag": ["a", None], "priority": pa.array([1, None]), "meta": ['{"a":1}', None]}),
    stream(
        {
            "value": pa.array(["1", "2", "3"], pa.large_string()),
            "topic": ["a", "b", "a"],
            "key": [b"x", None, b""],
            "delay_ms": pa.array([1, 2, 3], pa.uint8()),
        }
    ),
)


def _mutated(dice: random.Random) -> bytes:
    made = bytearray(dice.choice(SEEDS))
    for _ in range(dice.choice((1, 1, 2, 5))):
        place = dice.randrange(len(made))
        match dice.randrange(4):
            case 0:
                made[place] ^= 1 << dice.randrange(8)
            case 1:
                del made[place : place + dice.choice((1, 8, 64))]
            case 2:
                made[place:place] = bytes(dice.choice((1, 4, 8)))
            case _:
                made[place : place + 4] = dice.choice((b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\1\0\0\0"))
        made = made or bytearray(1)
    return bytes(made)


def test_mangled_streams_are_refused_or_give_sound_rows(tmp_path: Path) -> None:
    dice = random.Random(4)
    path = tmp_path / "part"
    taken = 0
    for _ in range(400):
        path.write_bytes(_mutated(dice))
        try:
            facts = incoming.inspect(path, None, None)
        except LoadRefused:
            continue
        taken += 1
        pieces = [piece for block in incoming.blocks(path) for piece in block.pieces(2, 1000)]
        assert sum(piece.rows for piece in pieces) == facts.rows
        for piece in pieces:
            assert isinstance(piece.work(b"t", QUEUE, None), Enqueue | EnqueueAlike)
    assert 0 < taken < 400


def _pieces(path: Path, rows_max: int = 1000, bytes_max: int = 1 << 20) -> list[incoming.Piece]:
    return [piece for block in incoming.blocks(path) for piece in block.pieces(rows_max, bytes_max)]


def test_the_same_file_gives_the_same_pieces(tmp_path: Path) -> None:
    path = tmp_path / "part"
    columns = {"value": [b"%d" % n * (n % 50) for n in range(500)], "topic": [f"t{n % 7}" for n in range(500)]}
    path.write_bytes(stream(columns, 97))
    first, again = _pieces(path, 10, 300), _pieces(path, 10, 300)
    assert [(piece.topic, piece.start, piece.stop) for piece in first] == [
        (piece.topic, piece.start, piece.stop) for piece in again
    ]
    assert sum(piece.rows for piece in first) == 500
    assert all(piece.rows <= 10 for piece in first)


def test_pieces_are_bounded_in_bytes_and_a_large_row_goes_alone(tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_bytes(stream({"value": [b"x" * 10, b"x" * 5000, b"x" * 10, b"x" * 10]}))
    assert [piece.rows for piece in _pieces(path, bytes_max=1000)] == [1, 1, 2]


def test_plain_rows_take_the_fastest_way(tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_bytes(stream({"value": [b"a", b"b"]}))
    (piece,) = _pieces(path)
    assert piece.work(b"q", QUEUE, None) == EnqueueAlike(b"q", [b"a", b"b"], 5000, 60_000)
    assert isinstance(piece.work(b"t", LOG, None), Append)


def test_rows_without_details_have_none(tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_bytes(stream({"value": [b"a", b"b"], "tag": [None, "t"], "priority": pa.array([None, 4])}))
    (piece,) = _pieces(path)
    work = piece.work(b"q", QUEUE, None)
    assert isinstance(work, Enqueue)
    assert [(job.priority, job.retry_ms, job.ttl_ms, job.details is None) for job in work.jobs] == [
        (0, None, None, True),
        (4, None, None, False),
    ]


@pytest.mark.parametrize("slack", [1, 3])
def test_a_buffer_may_be_longer_than_it_need_be(tmp_path: Path, slack: int) -> None:
    offsets = pa.array([0, 1, 2], pa.int32()).buffers()[1].to_pybytes()[:12] + bytes(slack)
    values = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"12" + bytes(slack))])
    path = tmp_path / "part"
    path.write_bytes(stream({"value": values}))
    (piece,) = _pieces(path)
    assert piece.work(b"q", QUEUE, None) == EnqueueAlike(b"q", [b"1", b"2"], 5000, 60_000)

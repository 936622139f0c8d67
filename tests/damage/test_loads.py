"""What was staged is published as it was sent, or not at all."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from esker.columns.incoming import inspect
from esker.engine.config import TopicType
from esker.errors import LoadRefused
from esker.journal.disk import RealDisk
from esker.node.staging import CommittedPart, Manifest, Place, Staging, check_part
from esker.testing.broker import Broker
from tests.loads import Loader, error, stream

PLACE = Place("nightly", 3)
NAME = "0-a1"
ROWS = stream({"value": pa.array([b"row %d" % n for n in range(30)], pa.binary())})


def staged(folder: Path) -> tuple[Staging, Path, str]:
    """A part, kept; its file and checksum."""
    staging = Staging(folder / "loads", RealDisk())
    file = staging.begin(PLACE, NAME)
    file.write(ROWS, sync=True)
    file.close()
    staging.keep(file.path, PLACE, NAME, file.checksum)
    assert staging.staged(PLACE) == {NAME: file.checksum}
    return staging, staging.part(PLACE, NAME, file.checksum), file.checksum


def test_no_flipped_bit_of_a_part_passes(tmp_path: Path) -> None:
    _, path, checksum = staged(tmp_path)
    check_part(path, checksum)
    sound = path.read_bytes()
    for place in range(0, len(sound), 5):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1 << place % 8]) + sound[place + 1 :])
        with pytest.raises(LoadRefused, match="part 0-a1 is damaged on disk"):
            check_part(path, checksum)


def test_no_flipped_bit_of_a_manifest_makes_another_of_it(tmp_path: Path) -> None:
    staging, path, checksum = staged(tmp_path)
    facts = msgspec.structs.replace(inspect(path, TopicType.QUEUE, None), sha256=checksum)
    manifest = Manifest(
        load=PLACE.load, batch=PLACE.batch, parts=[CommittedPart(NAME, facts)], topic=b"q", kind=TopicType.QUEUE,
        create=True, config=None, value_format=None, share=0.5,
    )  # fmt: skip
    staging.write_manifest(manifest)
    assert staging.manifest(PLACE) == manifest
    commit = path.with_name("commit.json")
    sound = commit.read_bytes()
    for place in range(len(sound)):
        commit.write_bytes(sound[:place] + bytes([sound[place] ^ 1 << place % 8]) + sound[place + 1 :])
        found = staging.manifest(PLACE)
        assert isinstance(found, str) or found == manifest, f"bit {place % 8} of byte {place}"


def test_a_manifest_and_a_part_from_before_they_had_checksums_are_taken(tmp_path: Path) -> None:
    staging, path, _ = staged(tmp_path)
    old = path.rename(path.with_name(f"{NAME}.arrow"))
    assert staging.staged(PLACE) == {NAME: ""}
    assert staging.part(PLACE, NAME, "") == old
    check_part(old, "")
    manifest = Manifest(
        load=PLACE.load, batch=PLACE.batch, parts=[CommittedPart(NAME, inspect(old, None, None))], topic=b"q",
        kind=None, create=True, config=None, value_format=None, share=0.5,
    )  # fmt: skip
    old.with_name("commit.json").write_bytes(msgspec.json.encode(manifest))
    assert staging.manifest(PLACE) == manifest


def test_the_same_attempt_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    staging, first, _ = staged(tmp_path)
    file = staging.begin(PLACE, NAME)
    file.write(ROWS + b"!", sync=True)
    file.close()
    staging.keep(file.path, PLACE, NAME, file.checksum)
    assert staging.staged(PLACE) == {NAME: file.checksum}
    assert not first.exists()


def test_a_part_that_was_damaged_while_it_waited_is_refused_at_its_commit(tmp_path: Path) -> None:
    with Broker(str(tmp_path / "data")) as broker:
        with Loader(broker.http_url, "l") as loader:
            assert loader.put(ROWS).status_code == 201
        broker.stop()
        (part,) = (tmp_path / "data" / "loads").rglob("*.arrow")
        data = bytearray(part.read_bytes())
        data[data.index(b"row 7")] ^= 1  # still an Arrow stream, with another row
        part.write_bytes(data)
        broker.start()
        with Loader(broker.http_url, "l") as loader:
            refused = error(loader.try_commit([NAME], topic="q", type="queue"), 400)
            assert "part 0-a1 is damaged on disk" in str(refused["message"])
            assert loader.put(ROWS).status_code == 201, "it can be staged again"
            loader.commit([NAME], topic="q", type="queue")
            assert loader.ended()["published"] == 30

"""The files of bulk loads: what was staged, and what was committed.

    loads/load=<name>/batch=<number>/     of a key with prefixes: load=<name>@<its namespace>
        <part>-<attempt>[.<topic>].<SHA-256>.arrow   a part, whole and on disk; with a digest of its topic, for it alone
        <part>-<attempt>[.<topic>].<n>.upload        one that is being received
        commit.json                                  the manifest: from its rename on, the batch will be published

The checksum of a part stands in its name from the moment it is kept, and in the manifest; that of the manifest, in its
file. Whoever reads one of them checks it. Files from before there were checksums have none, and are read as they are.

Names that come from clients are checked before they get here, and each has a prefix or suffix of its own, so none of
them can leave the directory. Everything here may wait for the disk and is called in threads.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Set
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from esker.columns.parts import Facts
from esker.engine import limits
from esker.engine.config import TopicConfig, TopicType
from esker.errors import LoadProblem, LoadRefused
from esker.journal.disk import Disk, make_directory, write_all
from esker.node.directory import FREE_BYTES_MIN

PART_BYTES_MAX: Final = 1 << 30
PARTS_MAX: Final = 10_000  # of one batch
STAGED_S_MAX: Final = 24 * 3600  # what is not committed by then goes; so does what has failed
CHUNK_ROWS: Final = 500  # published in one step: about half a millisecond of the loop
CHUNK_ROWS_ALONE: Final = 2000  # of a load that may have the whole loop
DEAR: Final = 4  # times that a row with any of these costs what others do
DEAR_COLUMNS: Final = frozenset({"delay_ms", "max_deliveries", "tag", "node", "meta", "key"})
CHUNK_BYTES: Final = 1 << 20

_CREATE_TRIES: Final = 100  # each fails only if a batch of the same load left in this very moment
_MANIFEST = "commit.json"
_PART_SUFFIX = ".arrow"
_UPLOAD = ".upload"
LOAD_PATTERN: Final = rf"[A-Za-z0-9._\-]{{1,{limits.LOAD_NAME_BYTES_MAX}}}"
ATTEMPT_PATTERN: Final = r"[0-9a-f]{1,64}"
_DIGEST_CHARS: Final = 32  # hexadecimal; a checksum has 64, so that the two can be told apart
PART_PATTERN: Final = rf"[0-9]{{1,18}}-{ATTEMPT_PATTERN}(?:\.([0-9a-f]{{{_DIGEST_CHARS}}}))?"
_LOAD = re.compile(LOAD_PATTERN)
_ATTEMPT = re.compile(ATTEMPT_PATTERN)
_PART = re.compile(PART_PATTERN)
_PART_FILE = re.compile(rf"(?P<name>{PART_PATTERN})(?:\.(?P<checksum>[0-9a-f]{{64}}))?\.arrow")
NUMBER_MAX: Final = 10**18 - 1

ValueFormat = Literal["json", "text"]


class Place(NamedTuple):
    """Of a batch. Loads of one name and different namespaces (fronts/access.py) have nothing in common."""

    load: str
    batch: int
    namespace: str = ""

    @property
    def name(self) -> str:
        """Of the load, among all: what its folder and its mark are called."""
        return f"{self.load}@{self.namespace}" if self.namespace else self.load


def load_problem(load: str) -> str | None:
    if _LOAD.fullmatch(load) is None:
        most = limits.LOAD_NAME_BYTES_MAX
        return f"load {load[:64]!r} is no name of a load: 1 to {most} ASCII letters, digits or . _ -"
    return None


def attempt_problem(attempt: str) -> str | None:
    if _ATTEMPT.fullmatch(attempt) is None:
        return f"attempt is {attempt[:80]!r}; expected 1 to 64 hexadecimal digits"
    return None


def part_name(number: int, attempt: str, topic: bytes | None) -> str:
    """A part that was staged for a topic says so in its name: it can be committed into no other."""
    return f"{number}-{attempt}" if topic is None else f"{number}-{attempt}.{_digest(topic)}"


def fits_topic(name: str, topic: bytes | None) -> bool:
    """Whether a part of this name may be committed into `topic`; None: into those that its rows name."""
    found = _PART.fullmatch(name)
    return found is not None and (found[1] is None or (topic is not None and found[1] == _digest(topic)))


def _digest(topic: bytes) -> str:
    return sha256(topic).hexdigest()[:_DIGEST_CHARS]


def part_number(name: str) -> int | None:
    """Of a part by its full name; None when it is no such name."""
    return int(name.partition("-")[0]) if _PART.fullmatch(name) is not None else None


def chunk_rows(share: float, columns: Set[str]) -> int:
    """How many rows are published in one step."""
    rows = CHUNK_ROWS_ALONE if share == 1 else CHUNK_ROWS
    return rows // DEAR if columns & DEAR_COLUMNS else rows


class CommittedPart(msgspec.Struct, frozen=True):
    name: str
    facts: Facts


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be published, and how. Its chunks are the same whenever it is read: their size stands here."""

    load: str
    batch: int
    namespace: str = ""
    parts: list[CommittedPart]
    topic: bytes | None  # None: the rows have a column
    kind: TopicType | None  # None: as the topic is
    create: bool
    config: TopicConfig | None
    value_format: ValueFormat | None
    share: float
    chunk_rows: int = CHUNK_ROWS
    chunk_bytes: int = CHUNK_BYTES
    failed: str | None = None

    @property
    def place(self) -> Place:
        return Place(self.load, self.batch, self.namespace)

    @property
    def rows(self) -> int:
        return sum(part.facts.rows for part in self.parts)


class _Sealed(msgspec.Struct, frozen=True):
    """The file of a manifest. One from before it had a checksum is the manifest itself."""

    sha256: str
    manifest: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_decode_manifest = msgspec.json.Decoder(Manifest).decode
_decode_sealed = msgspec.json.Decoder(_Sealed).decode


def check_part(path: Path, expected: str) -> None:
    """Reads all of it. Raises LoadRefused unless it is as it was when it was staged; nothing is known of an old one."""
    if not expected:
        return
    name = path.name.partition(".")[0]
    try:
        with path.open("rb") as file:
            found = file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise LoadRefused(LoadProblem.BAD_PART, f"part {name} cannot be read: {error.strerror}") from error
    if found != expected:
        raise LoadRefused(
            LoadProblem.BAD_PART,
            f"part {name} is damaged on disk: its checksum does not match; stage it again",
        )


class Staging:
    def __init__(self, directory: Path, disk: Disk) -> None:
        self._root = directory
        self._disk = disk
        self._uploads = 0

    def folder(self, place: Place) -> Path:
        return self._root / f"load={place.name}" / f"batch={place.batch}"

    def part(self, place: Place, name: str, checksum: str) -> Path:
        return self.folder(place) / (f"{name}.{checksum}{_PART_SUFFIX}" if checksum else f"{name}{_PART_SUFFIX}")

    # -- receiving

    def begin(self, place: Place, name: str) -> ReceivedFile:
        self._uploads += 1
        path = self.folder(place) / f"{name}.{self._uploads}{_UPLOAD}"
        self.check_room()
        with _told("stage"):
            return ReceivedFile(self, path, self._create(path))

    def _create(self, path: Path) -> int:
        """Opens a new file, in a folder that may have to be made."""
        for _ in range(_CREATE_TRIES):
            try:
                make_directory(self._disk, path.parent)
                return self._disk.open(path, create=True)
            except FileNotFoundError:
                continue  # another thread has just removed the folder, or that above, because it was empty
        make_directory(self._disk, path.parent)
        return self._disk.open(path, create=True)

    def check_room(self) -> None:
        root = self._root
        while not root.exists():
            root = root.parent
        free = self._disk.free_bytes(root)
        if free < FREE_BYTES_MIN:
            raise LoadRefused(
                LoadProblem.NO_ROOM,
                f"the disk has {free} bytes left, and loads leave {FREE_BYTES_MIN} to others; free some, or wait",
            )

    def keep(self, upload: Path, place: Place, name: str, checksum: str) -> None:
        """Makes an upload a part, durably. The same attempt again takes the place of the first."""
        before = self.staged(place).get(name, checksum)
        with _told("stage"):
            self._disk.rename(upload, self.part(place, name, checksum))
            self._disk.sync_directory(upload.parent)
        if before != checksum:
            self._remove(self.part(place, name, before))

    # -- what is there

    def staged(self, place: Place) -> dict[str, str]:
        """The parts of a batch and their checksums; empty for one that has none."""
        found = (_PART_FILE.fullmatch(name) for name in self._names(self.folder(place)))
        return {match["name"]: match["checksum"] or "" for match in found if match is not None}

    def _names(self, folder: Path) -> list[str]:
        try:
            return sorted(self._disk.names(folder))
        except FileNotFoundError:
            return []

    def places(self) -> Iterator[Place]:
        """All batches of which anything is there."""
        for load in self._names(self._root):
            for batch in self._names(self._root / load):
                number = batch.removeprefix("batch=")
                if number.isascii() and number.isdigit():
                    name, _, namespace = load.removeprefix("load=").partition("@")
                    yield Place(name, int(number), namespace)

    def age_s(self, place: Place, now: float) -> float:
        """Since anything in it was made."""
        try:
            return now - self.folder(place).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    # -- the manifest

    def write_manifest(self, manifest: Manifest) -> None:
        """The point of no return: durable when this returns."""
        folder = self.folder(manifest.place)
        fresh = folder / f"{_MANIFEST}{_UPLOAD}"
        with _told("commit"):
            fd = self._create(fresh)
            try:
                text = _encode(manifest)
                write_all(self._disk, fd, _encode(_Sealed(sha256(text).hexdigest(), msgspec.Raw(text))), 0)
                self._disk.fdatasync(fd)
            finally:
                self._disk.close(fd)
            self._disk.rename(fresh, folder / _MANIFEST)
            self._disk.sync_directory(folder)

    def manifest(self, place: Place) -> Manifest | str | None:
        """A text: what is wrong with it."""
        path = self.folder(place) / _MANIFEST
        try:
            data = path.read_bytes()
            try:
                sealed = _decode_sealed(data)
            except msgspec.ValidationError:
                return _decode_manifest(data)
            if sha256(sealed.manifest).hexdigest() != sealed.sha256:
                return f"{path.relative_to(self._root.parent)} is damaged: its checksum does not match"
            return _decode_manifest(sealed.manifest)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            return f"{path.relative_to(self._root.parent)} cannot be read: {error}"

    # -- removing

    def drop_parts(self, place: Place, names: list[str]) -> None:
        staged = self.staged(place)
        for name in names:
            self._remove(self.part(place, name, staged.get(name, "")))
        self._remove_folders(place)

    def drop_uploads(self) -> None:
        """At the start: nobody sends them any more."""
        for place in list(self.places()):
            for name in self._names(self.folder(place)):
                if name.endswith(_UPLOAD):
                    self._remove(self.folder(place) / name)

    def drop_all(self, place: Place) -> None:
        """The manifest last: while it is there, the rest is asked for. What is still being received stays."""
        self.drop_parts(place, list(self.staged(place)))
        self._remove(self.folder(place) / _MANIFEST)
        self._remove_folders(place)

    def drop_committed(self, manifest: Manifest) -> None:
        """What was staged beside the parts of the manifest stays: whoever staged it will ask for it."""
        place = manifest.place
        for part in manifest.parts:
            self._remove(self.part(place, part.name, part.facts.sha256))
        self._remove(self.folder(place) / _MANIFEST)
        self._remove_folders(place)

    def discard(self, upload: Path, place: Place) -> None:
        self._remove(upload)
        self._remove_folders(place)

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(path)

    def _remove_folders(self, place: Place) -> None:
        """If nothing is in them any more."""
        folder = self.folder(place)
        with contextlib.suppress(OSError):
            folder.rmdir()
            folder.parent.rmdir()


class ReceivedFile:
    """A file that grows while its part is received."""

    def __init__(self, staging: Staging, path: Path, fd: int) -> None:
        self._staging = staging
        self._disk = staging._disk
        self.path = path
        self._fd = fd
        self._checksum = sha256()
        self.size = 0

    def write(self, data: bytes, sync: bool) -> None:
        """`sync`: now and then, so that the last one is not so slow that the journal's have to wait for it."""
        self._staging.check_room()
        with _told("stage"):
            write_all(self._disk, self._fd, data, self.size)
            self.size += len(data)
            self._checksum.update(data)
            if sync:
                self._disk.fdatasync(self._fd)

    @property
    def checksum(self) -> str:
        """Of all that was written."""
        return self._checksum.hexdigest()

    def close(self) -> None:
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LoadRefused(LoadProblem.NO_ROOM, f"the disk refused to {what} the load: {error.strerror}") from error

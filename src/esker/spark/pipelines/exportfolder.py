"""The folder of an export: data files by day, and a hidden part that makes every change of them all or nothing.

    day=2026-01-31/b00000012-00000.parquet     a file of batch 12
    day=2026-01-31/c00000012-3f2a91c0.parquet  several small ones, compacted
    _export/export.json                        which topic and format; whoever exports another is refused
    _export/change.json                        the last change: what moves in, what goes, and of which batch it is
    _export/staging/                           files that are not part of the export yet
    _export/checkpoint/                        where the stream stands, unless it is kept elsewhere

A change is written down before it is made, and making it twice does no harm: files that were moved are not there to be
moved again. So after a crash the next one who opens the folder finishes it, and a batch that Spark runs again is found
to be there. Readers see the files of a batch appear one by one; nobody ever sees half a file or a file twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from esker.errors import EskerError, SettingsError

HIDDEN: Final = "_export"
_ARCHIVE_MARK: Final = "archive.json"


@dataclass(frozen=True, slots=True)
class Change:
    """`moves`: from staging to their place; `removes`: what they replace. Paths are relative to the folder.
    `query` and `batch`: everything of the stream up to here is in the export."""

    query: str
    batch: int
    moves: dict[str, str] = field(default_factory=dict)
    removes: list[str] = field(default_factory=list)


class ExportFolder:
    """Held by one process at a time, from `hold` on."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._hidden = root / HIDDEN
        self.checkpoint = self._hidden / "checkpoint"

    @contextmanager
    def hold(self, topic: str, format: str) -> Iterator[None]:
        """Raises SettingsError when the folder is something else, or somebody is at it."""
        if (self.root / _ARCHIVE_MARK).exists():
            raise SettingsError(f"output {self.root} is a node's archive; choose another folder")
        if self.root.exists() and not self._hidden.exists() and any(self.root.iterdir()):
            raise SettingsError(f"output {self.root} holds other things; choose an empty folder")
        self._hidden.mkdir(parents=True, exist_ok=True)
        with (self._hidden / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise SettingsError(f"output {self.root}: another export is at it") from error
            self._claim(topic, format)
            self.finish()
            yield

    def _claim(self, topic: str, format: str) -> None:
        mine = {"topic": topic, "format": format}
        found = _read(self._hidden / "export.json")
        if found is None:
            _write(self._hidden / "export.json", mine)
        elif found != mine:
            raise SettingsError(
                f"output {self.root} holds an export of topic {found.get('topic')!r} as {found.get('format')}"
            )

    def last(self) -> Change | None:
        found = _read(self._hidden / "change.json")
        if found is None:
            return None
        try:
            return Change(**found)  # type: ignore[arg-type]  # our own file; wrong keys are told below
        except TypeError as error:
            raise EskerError(f"{self._hidden / 'change.json'} is damaged: {error}") from error

    def has(self, query: str, batch: int) -> bool:
        """Whether a batch of the stream is part of the export. Raises where the folder was filled by another stream."""
        last = self.last()
        if last is None:
            return False
        if last.query != query:
            raise EskerError(
                f"output {self.root} was filled with another checkpoint; name that one, or export into an empty folder"
            )
        return batch <= last.batch

    def staging(self, name: str) -> Path:
        """An empty place for files of a change to come."""
        place = self._hidden / "staging" / name
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def make(self, change: Change) -> None:
        """The files to move are whole on disk when this is called. Once it is written down, it will happen."""
        for source in change.moves:
            _sync(self.root / source)
        _write(self._hidden / "change.json", asdict(change))
        self.finish()

    def finish(self) -> None:
        """Makes the change that was written down last, as far as it is not made yet."""
        last = self.last()
        if last is None:
            return
        touched = set()
        for source, target in last.moves.items():
            place = self.root / target
            if (self.root / source).exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                (self.root / source).replace(place)
                touched.add(place.parent)
            elif not place.exists() and target not in last.removes:
                raise EskerError(f"output {self.root}: {target} is missing, and it was not there to be moved in")
        for folder in touched:
            _sync(folder)
        for name in last.removes:
            (self.root / name).unlink(missing_ok=True)
        if last.moves or last.removes:
            _write(self._hidden / "change.json", asdict(Change(last.query, last.batch)))
        shutil.rmtree(self._hidden / "staging", ignore_errors=True)

    def relative(self, path: Path) -> str:
        return str(path.relative_to(self.root))

    def data_files(self) -> Iterator[tuple[str, list[Path]]]:
        """Each day with its files."""
        for day in sorted(self.root.glob("day=*")):
            yield day.name, sorted(day.glob("*.parquet"))


def staged_moves(folder: ExportFolder, staging: Path, batch: int) -> dict[str, str]:
    """Where the files that Spark wrote for a batch belong."""
    moves: dict[str, str] = {}
    for number, path in enumerate(sorted(staging.glob("day=*/*.parquet"))):
        moves[folder.relative(path)] = f"{path.parent.name}/b{batch:08d}-{number:05d}.parquet"
    return moves


def query_id(checkpoint: Path) -> str:
    """The stream's own name, which Spark keeps in its checkpoint."""
    found = _read(checkpoint / "metadata")
    if found is None or not isinstance(found.get("id"), str):
        raise EskerError(f"checkpoint {checkpoint}: there is no id of a stream in it")
    return str(found["id"])


def total_bytes(paths: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def _read(path: Path) -> dict[str, object] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise EskerError(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise EskerError(f"{path} is damaged: it is no JSON object")
    return found


def _write(path: Path, found: object) -> None:
    """Whole or not at all, and on disk before it counts."""
    draft = path.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(found, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)

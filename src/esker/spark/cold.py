# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""Files of the archive, read by tasks themselves: the broker is not asked for what it would have to fetch as well.

A task looks whether the archive it can reach is that of the broker (`archive.json` tells whose it is): the same path
may be another folder on another machine. If it is not, or a file is gone since the plan was made, the broker is asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from esker.checksums import FOOTER_KEY, damage
from esker.spark.errors import EskerSparkError
from esker.spark.options import Direct
from esker.spark.plan import ColdFile

BATCH_ROWS: Final = 65_536
_OWNER = "archive.json"
_CHECKS: Final = 4  # files read at a time to check them; each is some tens of MB in memory
_SOUND_MAX: Final = 10_000  # files that are remembered as sound
_sound: dict[tuple[object, ...], None] = {}
# Formats of files that have no checksum. None: the file is not of a broker, but was made from some, as an extract.
_UNSEALED_FORMATS: Final = {"records": (None, b"1"), "events": (None, b"1", b"2")}


class FileGone(Exception):
    """The file is no longer there: its records were trimmed, or moved, after the plan was made."""


def reachable(archive: str | None, node: str, direct: Direct) -> bool:
    """Whether this process reads the archive itself. Raises EskerSparkError where it must and cannot."""
    if direct is Direct.NEVER or archive is None:
        return False
    problem = _problem(archive, node)
    if problem and direct is Direct.ALWAYS:
        raise EskerSparkError(f"option direct: the archive {archive} cannot be read here: {problem}")
    return not problem


def read_file(
    archive: str, file: ColdFile, key: str, low: int, high: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Rows whose `key` is from `low` to before `high` and not dead. Raises FileGone, or EskerSparkError for a file that
    is damaged. `columns` must hold `key`."""
    where = f"{archive.rstrip('/')}/{file.path}"
    try:
        parquet = pq.ParquetFile(pa.BufferReader(checked(archive, file)))
        groups = _groups(parquet, key, low, high)
        for batch in parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=list(columns)):
            kept = _kept(batch, key, low, high, file.dead)
            if kept.num_rows:
                yield kept
    except (FileNotFoundError, FileGone):
        raise FileGone(where) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise EskerSparkError(f"file {where} of the archive is not a whole Parquet file: {reason}") from None


def plain_text(column: pa.Array) -> pa.Array:
    """A text column of a file. One that holds something else than UTF-8 is binary there."""
    if pa.types.is_binary(column.type):
        shown = [None if value is None else value.decode("utf-8", "backslashreplace") for value in column.to_pylist()]
        return pa.array(shown, pa.string())
    return column


def _kept(batch: pa.RecordBatch, key: str, low: int, high: int, dead: Sequence[int]) -> pa.RecordBatch:
    if not batch.num_rows:
        return batch
    keys = batch.column(key)
    first, last = keys[0].as_py(), keys[-1].as_py()
    mask = None
    if first < low or last >= high:
        mask = pc.and_(pc.greater_equal(keys, low), pc.less(keys, high))
    for start, count in zip(dead[::2], dead[1::2], strict=True):
        if start <= last and start + count > first:
            alive = pc.or_(pc.less(keys, start), pc.greater_equal(keys, start + count))
            mask = alive if mask is None else pc.and_(mask, alive)
    return batch if mask is None else batch.filter(mask)


def _groups(parquet: pq.ParquetFile, key: str, low: int, high: int) -> list[int]:
    """The row groups that may hold something of the range."""
    metadata = parquet.metadata
    index = parquet.schema_arrow.get_field_index(key)
    if index < 0:
        raise ValueError(f"it has no column {key}")
    found = []
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(index).statistics
        if statistics is None or not statistics.has_min_max or (statistics.min < high and statistics.max >= low):
            found.append(number)
    return found


@lru_cache(maxsize=32)
def _problem(archive: str, node: str) -> str:
    """Why this process cannot read the archive; empty: it can."""
    if urlsplit(archive).scheme == "memory":
        return "it is in the memory of the broker"
    if local_folder(archive) is None and find_spec("obstore") is None:
        return "the package obstore is missing: pip install 'esker[archive]'"
    try:
        owner = _read_all(archive, _OWNER)
    except (OSError, FileGone) as error:
        return str(error) or "it is not there"
    try:
        of = json.loads(owner)["node"]
    except (ValueError, KeyError, TypeError):
        return f"its {_OWNER} is damaged"
    return "" if of == node else "it belongs to another broker"


def checked(archive: str, file: ColdFile) -> bytes:
    """The bytes of a file, which are as they were written. Raises FileGone, EskerSparkError and OSError."""
    data = _read_all(archive, file.path)
    problem = damage_in(data, file.path, file.sha256)
    if problem is not None:
        raise EskerSparkError(f"file {archive.rstrip('/')}/{file.path} of the archive: {problem}")
    return data


def check_files(archive: str, files: Sequence[ColdFile]) -> None:
    """Reads all of these, for whom reads them without looking at their checksums. Raises EskerSparkError.

    Files that are gone are left to the reader. One that was found sound is not read again while it stays as it is.
    """
    with ThreadPoolExecutor(_CHECKS) as pool:
        for _ in pool.map(partial(_check_file, archive), files):
            pass


def _check_file(archive: str, file: ColdFile) -> None:
    folder = local_folder(archive)
    try:
        told = None if folder is None else (folder / file.path).stat()
        known = (archive, file.path, file.sha256, *(() if told is None else (told.st_size, told.st_mtime_ns)))
        if told is not None and known in _sound:
            return
        checked(archive, file)
        _sound[known] = None
        while len(_sound) > _SOUND_MAX:
            _sound.pop(next(iter(_sound)), None)
    except (FileNotFoundError, FileGone):
        return
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise EskerSparkError(
            f"file {archive.rstrip('/')}/{file.path} of the archive cannot be read: {reason}"
        ) from None


def damage_in(data: bytes, path: str, expected: str = "") -> str | None:
    """What is wrong with a file, and what to do; None where it is sound, or from before files had checksums."""
    problem = damage(data, expected)
    if problem is None and not expected:
        footer = pq.read_metadata(pa.BufferReader(data)).metadata or {}
        unsealed = _UNSEALED_FORMATS["events" if "/events/" in f"/{path}" else "records"]
        if footer.get(b"esker.format") not in unsealed and FOOTER_KEY.encode() not in footer:
            problem = "it is damaged: its checksum is missing"
    return None if problem is None else f"{problem}; put it back from a backup"


def _read_all(archive: str, path: str) -> bytes:
    folder = local_folder(archive)
    if folder is not None:
        return (folder / path).read_bytes()
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    try:
        return bytes(from_url(archive.rstrip("/")).get(path).bytes())
    except FileNotFoundError:
        raise FileGone(path) from None
    except BaseError as error:
        raise OSError(" ".join(str(error).split())[:300]) from None


def local_folder(archive: str) -> Path | None:
    if "://" not in archive:
        return Path(archive)
    parts = urlsplit(archive)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None

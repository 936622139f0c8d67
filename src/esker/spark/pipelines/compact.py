"""Small files of an export become large ones.

Each batch leaves at least one file a day, so an export that runs often is made of many small files, which are slow to
list and to read. Those of one day are written together into a new file, which then takes their place in one change of
the folder (exportfolder.py). It works on exports only, never on files that a node owns.
"""

# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pyarrow.parquet as pq

from esker.errors import EskerError
from esker.spark.pipelines.exportfolder import Change, ExportFolder
from esker.spark.pipelines.progress import Progress


class Compacted(NamedTuple):
    files_before: int
    files_after: int
    rows: int


def compact(folder: ExportFolder, file_bytes: int, progress: Progress) -> Compacted:
    """For the holder of the folder. Makes one change for each new file, so it may be stopped at any time."""
    before = after = rows = 0
    for day, files in folder.data_files():
        before += len(files)
        after += len(files)
        for group in small_groups([(path, path.stat().st_size) for path in files], file_bytes):
            rows += _merge(folder, day, group)
            after -= len(group) - 1
            progress.advance(rows)
    return Compacted(before, after, rows)


def small_groups(files: Sequence[tuple[Path, int]], file_bytes: int) -> Iterator[list[Path]]:
    """Files below half of the wanted size, together up to that size; one alone stays as it is."""
    group: list[Path] = []
    size = 0
    for path, bytes_ in files:
        if bytes_ >= file_bytes // 2:
            continue
        if group and size + bytes_ > file_bytes:
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(path)
        size += bytes_
    if len(group) > 1:
        yield group


def _merge(folder: ExportFolder, day: str, group: Sequence[Path]) -> int:
    last = folder.last()
    if last is None:
        raise EskerError(f"output {folder.root}: there are files, but nothing tells how they came there")
    name = f"c{last.batch:08d}-{uuid4().hex[:8]}.parquet"
    place = folder.staging("compact")
    place.mkdir()
    rows = 0
    ordered = sorted(group, key=_first_offset)
    with pq.ParquetWriter(place / name, pq.read_schema(ordered[0]), compression="zstd") as writer:
        for path in ordered:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    writer.write_batch(batch)
                    rows += batch.num_rows
    change = Change(
        last.query,
        last.batch,
        {folder.relative(place / name): f"{day}/{name}"},
        [folder.relative(path) for path in group],
    )
    folder.make(change)
    return rows


def _first_offset(path: Path) -> int:
    try:
        with pq.ParquetFile(path) as file:
            column = file.schema_arrow.names.index("offset")
            first: int = file.metadata.row_group(0).column(column).statistics.min
            return first
    except (OSError, ValueError, AttributeError, IndexError) as error:
        raise EskerError(f"{path} is no whole file of an export: {error}") from error

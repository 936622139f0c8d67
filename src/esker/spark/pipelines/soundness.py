# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""Files of an archive that Spark's own reader is to read: it knows nothing of their checksums, so tasks look at them.

They are read through Spark, so that whatever place it knows will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from esker.errors import SettingsError
from esker.spark.cold import damage_in

_SHOWN = 3


def check_sound(spark: SparkSession, paths: Sequence[str]) -> None:
    """Raises SettingsError when one of these is damaged."""
    if not paths:
        return
    read = spark.read.format("binaryFile").load(list(paths)).select("path", "content")
    found = read.mapInArrow(_damaged, "path string, problem string").collect()
    if found:
        told = "; ".join(f"{row.path}: {row.problem}" for row in found[:_SHOWN])
        raise SettingsError(f"{len(found)} of {len(paths)} files of the archive are damaged: {told}")


def _damaged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        paths: list[str] = []
        problems: list[str] = []
        for path, content in zip(*batch.columns, strict=True):
            try:
                problem = damage_in(content.as_py(), path.as_py())
            except (pa.ArrowException, OSError, ValueError) as error:
                problem = f"it is not a whole Parquet file: {' '.join(str(error).split())}"
            if problem is not None:
                paths.append(path.as_py())
                problems.append(problem)
        yield pa.RecordBatch.from_arrays(
            [pa.array(paths, pa.string()), pa.array(problems, pa.string())], names=["path", "problem"]
        )

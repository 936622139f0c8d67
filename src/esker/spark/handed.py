# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""Files that the broker hands over to tasks on its own machine: they map what they would else be sent.

Whoever can look into the broker's spool, a folder with a secret name, is on its machine and may read what is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa

from esker.spark.client import Client, Query
from esker.spark.errors import EskerSparkError, Refused
from esker.spark.options import Direct

_STREAM_INSTEAD = frozenset({"no_file", "not_found"})  # the latter from a broker that is older than this


class NotHanded(Exception):
    """There is no file, or it cannot be opened: what is in it is to be streamed."""


def within_reach(spool: str | None, direct: Direct) -> bool:
    return direct is not Direct.NEVER and spool is not None and os.access(spool, os.R_OK | os.X_OK)


def ask_file(broker: Client, path: str, query: Query | None = None) -> dict[str, object]:
    """The broker's answer. Raises NotHanded, and what the client raises."""
    try:
        return broker.ask("GET", path, query).body
    except Refused as refused:
        if refused.code in _STREAM_INSTEAD:
            raise NotHanded(str(refused)) from None
        raise


def batches_in(path: object) -> Iterator[pa.RecordBatch]:
    """Those of a file, which may go meanwhile: what is mapped stays. Raises NotHanded."""
    try:
        mapped = pa.memory_map(str(path))
    except (OSError, pa.ArrowException) as error:
        raise NotHanded(str(error)) from None
    try:
        with mapped, pa.ipc.open_stream(mapped) as stream:
            for batch in stream:
                if batch.num_rows:
                    yield batch
    except pa.ArrowException as error:
        raise EskerSparkError(f"file {path} of the broker is not a whole Arrow stream: {error}") from None

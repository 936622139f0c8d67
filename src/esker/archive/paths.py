"""How files of the archive are named, so that tools that know Hive folders find topics, epochs and days in the names.

    records/topic=<name>/epoch=<number>/p<partition>-<first seq>-<last seq>.parquet
    events/day=<YYYY-MM-DD>/<first position>-<last position>.parquet

Numbers have leading zeros, so that names sort as they count.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import quote

RECORDS = "records"
EVENTS = "events"

# What a file name may hold is 255 bytes nearly everywhere; a longer topic is cut, and a hash keeps it apart.
_NAME_BYTES_MAX = 200


def records_path(topic: bytes, number: int, partition: int, first: int, last: int) -> str:
    return f"{RECORDS}/topic={quoted(topic)}/epoch={number}/p{partition}-{first:016d}-{last:016d}.parquet"


def events_path(ms: int, first_position: int, last_position: int) -> str:
    return f"{EVENTS}/day={day_of(ms)}/{first_position:020d}-{last_position:020d}.parquet"


def day_of(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).date().isoformat()


def quoted(topic: bytes) -> str:
    """A name as a part of a path: as it is where it can be, else percent-encoded."""
    text = quote(topic, safe=":")
    if len(text) <= _NAME_BYTES_MAX:
        return text
    return f"{text[:_NAME_BYTES_MAX].rstrip('%')}~{sha256(topic).hexdigest()[:16]}"

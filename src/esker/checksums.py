"""The checksum that a file carries over all of its own bytes, and how any reader checks it.

A Parquet file has room for one in its footer, under the key `esker.sha256`: the SHA-256, in hexadecimal, of the file
with zeros ("0") in the place of those 64 characters. Thus it covers every byte: pages, their headers, which Parquet's
own page checksums leave out, the footer, and names and numbers of ours in it. It is found without reading Parquet, so a
reader that has the bytes can check them, whatever decodes the file afterwards.

SHA-256 is in Python itself, so that Spark's processes need nothing more, and takes 0.6 ms a megabyte.
"""

from __future__ import annotations

from hashlib import sha256

FOOTER_KEY = "esker.sha256"
UNSEALED = "0" * 64
"""What a writer puts under the key; `seal` then takes its place."""

# A key and a value of 64 characters, as Thrift's compact protocol writes them.
_PLACE = b"\x18" + bytes([len(FOOTER_KEY)]) + FOOTER_KEY.encode() + b"\x18\x40"


def seal(data: bytes) -> tuple[bytes, str]:
    """The file with its checksum in its footer, and the checksum."""
    start = data.rindex(_PLACE) + len(_PLACE)
    digest = _digest(data, start)
    return data[:start] + digest.encode() + data[start + len(UNSEALED) :], digest


def damage(data: bytes, expected: str = "") -> str | None:
    """What is wrong with the bytes of a file; None: they are as they were written, or it has no checksum.

    `expected`: the checksum that it is known to have, if any.
    """
    place = data.rfind(_PLACE)
    if place < 0:
        return "it is damaged: its checksum is missing" if expected else None
    start = place + len(_PLACE)
    told = data[start : start + len(UNSEALED)].decode("ascii", "replace")
    if told != _digest(data, start):
        return "it is damaged: its checksum does not match"
    if expected and told != expected:
        return "it is another file than the one that was written there: its checksum is not the one that was noted"
    return None


def _digest(data: bytes, start: int) -> str:
    view = memoryview(data)
    made = sha256(view[:start])
    made.update(UNSEALED.encode())
    made.update(view[start + len(UNSEALED) :])
    return made.hexdigest()

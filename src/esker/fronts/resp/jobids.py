"""Job ids as Disque's clients know them: `DI` + 8 hex of the node + 32 hex of the message id + 4 hex + `SQ`.

The last four digits are the TTL in minutes (at most ffff, which also stands for "no TTL"), made odd for a job that is
retried and even for one that is delivered at most once. Only the 32 digits name the job; an id made by another node or
with another TTL is as good.

The 40-character ids of the final Disque (`D-` 8 hex `-` 24 of base64 `-` 4 hex) are well-formed too, but never a job of
ours.
"""

from __future__ import annotations

import re
from binascii import hexlify, unhexlify
from collections.abc import Sequence
from typing import Final

from esker.fronts.resp.errors import CommandError, syntax_error

_BAD_ID: Final = "BADID Invalid Job ID format."
_MINUTE_MS: Final = 60_000
TOKEN: Final = b"TOKEN"
_TOKEN: Final = re.compile(rb"[0-9a-f]{1,16}")

# The id of no job: the engine's ids carry their time in the upper bits, and nothing was made in 1970.
UNKNOWN: Final = 0


class JobIds:
    """Writes the ids of one node: its `head`, the `digits` of the message id, a `tail`."""

    __slots__ = ("_ends", "_tails", "head")

    def __init__(self, node_id: str) -> None:
        self.head = b"DI" + node_id[:8].encode()
        self._tails: dict[tuple[int, bool], bytes] = {}
        self._ends: list[bytes] = []  # the last two digits of an id and what follows, in the replies made last

    def write(self, message_id: int, ttl_ms: int, retry_ms: int) -> bytes:
        return self.head + digits(message_id) + self.tail(ttl_ms, retry_ms)

    def tail(self, ttl_ms: int, retry_ms: int) -> bytes:
        """How the ids of jobs with this TTL and retry end."""
        return self._tails.get((ttl_ms, retry_ms > 0)) or self._make_tail(ttl_ms, retry_ms > 0)

    def added(self, message_ids: Sequence[int], ttl_ms: int, retry_ms: int) -> list[bytes]:
        """The replies to ADDJOBs of one TTL and retry, made together: of ids in a row mostly the end differs."""
        tail = self.tail(ttl_ms, retry_ms) + b"\r\n"
        if not isinstance(message_ids, range):
            return [b"+" + self.head + digits(message_id) + tail for message_id in message_ids]
        if not self._ends or not self._ends[0].endswith(tail):
            self._ends = [b"%02x%b" % (last, tail) for last in range(256)]
        replies: list[bytes] = []
        at = message_ids.start
        while at < message_ids.stop:
            head = b"+%b%030x" % (self.head, at >> 8)
            ends = self._ends[at & 0xFF : (at & 0xFF) + message_ids.stop - at]
            replies += [head + end for end in ends]
            at += len(ends)
        return replies

    def _make_tail(self, ttl_ms: int, retried: bool) -> bytes:
        minutes = min(ttl_ms // _MINUTE_MS, 0xFFFF) if ttl_ms else 0xFFFF
        tail = b"%04xSQ" % (minutes | 1 if retried else minutes & ~1)
        if len(self._tails) < 4096:  # clients may choose any TTL; the usual few are remembered
            self._tails[ttl_ms, retried] = tail
        return tail


def digits(message_id: int) -> bytes:
    return hexlify(message_id.to_bytes(16, "big"))


def read(job_id: bytes) -> int:
    """The message id that `job_id` names, or `UNKNOWN`. Raises `CommandError` (BADID) when it is not an id."""
    if _is_ours(job_id):
        try:
            return int.from_bytes(unhexlify(job_id[2:46])[4:20], "big")
        except ValueError:
            raise CommandError(_BAD_ID) from None
    if len(job_id) == 40 and job_id[:2] == b"D-" and job_id[10] == job_id[35] == ord("-"):
        return UNKNOWN
    raise CommandError(_BAD_ID)


NO_JOB: Final = b"D-" + b"0" * 8 + b"-" + b"0" * 24 + b"-" + b"0" * 4  # well-formed, and never of ours


def known(argument: bytes) -> int | None:
    """The message id that an argument names, if it is an id of ours."""
    try:
        return (read(argument) or None) if _is_ours(argument) else None
    except CommandError:
        return None


def write_token(token: int) -> bytes:
    """A fencing token as clients see it. A text, because not every client can hold a number of 63 bits."""
    return b"%x" % token


def read_named(words: Sequence[bytes]) -> tuple[list[int], list[int | None] | None]:
    """What `id [TOKEN t] id [TOKEN t]…` names: message ids, and their tokens in the same order; None: none is given.

    All of it is checked before any is used; ids of no job of ours are left out, repeated ones count once.
    """
    try:
        return read_all(words), None
    except CommandError:
        if TOKEN not in map(bytes.upper, words):
            raise
    named: dict[int, int | None] = {}
    at = 0
    while at < len(words):
        message_id, token = read(words[at]), None
        at += 1
        if at < len(words) and words[at].upper() == TOKEN:
            token = read_token(words[at + 1 : at + 2])
            at += 2
        if message_id:
            named[message_id] = named.get(message_id) if token is None else token
    return list(named), list(named.values())


def read_token(words: Sequence[bytes]) -> int:
    """The token behind the word TOKEN."""
    if len(words) != 1:
        raise syntax_error()
    if not _TOKEN.fullmatch(words[0]):
        raise CommandError("ERR TOKEN must be one that GETJOB WITHTOKEN returned")
    return int(words[0], 16)


def _is_ours(job_id: bytes) -> bool:
    """Has the form of our ids; whether its digits are digits is not looked at."""
    return len(job_id) == 48 and job_id.startswith(b"DI") and job_id.endswith(b"SQ")


def read_all(job_ids: Sequence[bytes]) -> list[int]:
    """All of them are checked before any is used; ids of no job of ours are left out, repeated ones count once."""
    if len(job_ids) == 1:
        only = read(job_ids[0])
        return [only] if only else []
    if all(map(_is_ours, job_ids)):
        try:
            packed = unhexlify(b"".join([job_id[2:46] for job_id in job_ids]))
        except ValueError:
            raise CommandError(_BAD_ID) from None
        found = [int.from_bytes(packed[at + 4 : at + 20], "big") for at in range(0, len(packed), 22)]
    else:
        found = list(map(read, job_ids))
    return list(dict.fromkeys(filter(None, found)))

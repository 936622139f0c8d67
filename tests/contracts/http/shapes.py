"""What an answer must look like, to the last key and type.

`check(found, wanted)` compares JSON strictly: the same keys, the same types (true is not 1), the same values; where
`wanted` has a rule in place of a value, the rule decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    says: str
    allows: Callable[[object], bool]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_performance(value: object) -> bool:
    known = {
        "server_total_ms",
        "wal_append_ms",
        "fsync_ms",
        "records_scanned",
        "throttle_wait_ms",
        "cold_segments_read",
    }
    return (
        isinstance(value, dict)
        and "server_total_ms" in value
        and value.keys() <= known
        and all(isinstance(one, int | float) and not isinstance(one, bool) and one >= 0 for one in value.values())
    )


INT = Rule("an integer of 0 or more", lambda value: _is_int(value) and isinstance(value, int) and value >= 0)
TIME = Rule("epoch milliseconds", lambda value: isinstance(value, int) and 1_600_000_000_000 < value < 1 << 43)
NUMBER = Rule("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool))
TEXT = Rule("text that is not empty", lambda value: isinstance(value, str) and value != "")
PERFORMANCE = Rule("a performance object", _is_performance)
LEASE = Rule("lease_ and hex", lambda value: isinstance(value, str) and bool(re.fullmatch("lease_[0-9a-f]+", value)))

DEFAULTS: dict[str, object] = {
    "type": "log", "ttl_ms": 0, "cap_records": 0, "cap_bytes": 0, "discard": "old", "durable": False,
    "durability": "disk", "priority": None, "auto_priority": True, "auto_create": True,
    "idempotency_window_ms": 120_000, "dedupe_node": True, "lease_ms": 30_000, "claim_jitter_ms": 0,
    "max_deliveries": 0, "dead_letter": None, "leases_durable": False,
}  # fmt: skip


def config(**changed: object) -> dict[str, object]:
    return {**DEFAULTS, **changed}


def check(found: object, wanted: object, where: str = "answer") -> None:
    if isinstance(wanted, Rule):
        assert wanted.allows(found), f"{where}: {found!r} is not {wanted.says}"
    elif isinstance(wanted, Mapping):
        assert isinstance(found, dict), f"{where}: {found!r} is no object"
        missing, unexpected = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
        assert not missing, f"{where}: missing {missing}"
        assert not unexpected, f"{where}: unexpected {unexpected}"
        for name, value in wanted.items():
            check(found[name], value, f"{where}.{name}")
    elif isinstance(wanted, list):
        assert isinstance(found, list), f"{where}: {found!r} is no list"
        assert len(found) == len(wanted), f"{where}: {found!r} instead of {wanted!r}"
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            check(one, other, f"{where}[{number}]")
    else:
        same = type(found) is type(wanted) and found == wanted
        assert same, f"{where}: {found!r} instead of {wanted!r}"


def record(seq: int, data: object, **more: object) -> dict[str, object]:
    """`node` and `tag` are told as `$node` and `$tag`."""
    named = {f"${name}" if name in ("node", "tag") else name: value for name, value in more.items()}
    return {"$seq": seq, "$ts": TIME, "data": data, **named}

"""Time for a shard: milliseconds since the epoch that never go back and never leap.

The system's wall clock can be set, by hand or by NTP, in either direction. A leap forward would end every lease at
once, a leap back would freeze every timer. So time here runs by the monotonic clock and only leans towards the wall
clock: at most 10 % faster or slower, until they agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_LEAN = 0.1
_FRESH_S = 0.0002  # asked again within this, the answer is the same: every command asks


class Clock:
    """`start_ms` is the last time the shard has already seen; the clock starts no earlier."""

    def __init__(
        self,
        start_ms: int = 0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._at = monotonic()
        self._now = max(wall() * 1000, float(start_ms))

    def now_ms(self) -> int:
        at = self._monotonic()
        if at < self._at + _FRESH_S:
            return int(self._now)
        passed = (at - self._at) * 1000
        self._at = at
        drift = self._wall() * 1000 - (self._now + passed)
        lean = passed * _LEAN
        self._now += passed + max(-lean, min(lean, drift))
        return int(self._now)

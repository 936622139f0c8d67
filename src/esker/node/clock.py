"""Time for a shard: milliseconds since the epoch that never go back and never leap.

The system's wall clock can be set, by hand or by NTP, in either direction. A leap forward would end every lease and
drop every job that has a TTL, a leap back would freeze every timer. So time here runs by the clock that counts since
the machine started, and only leans towards the wall clock: at most 10 % faster or slower, until they agree.

A wall clock that is further off than `jump_ms_max` is not believed at all: time is *held*. It passes as it does on the
machine's own clock and leans nowhere, until the wall clock is within reach again or somebody confirms it (`trust`). The
same at a start: what the shard saw last, and how long ago that was if the machine can tell (clockkeeping.py), count for
more than a wall clock that is far ahead of both. So a wrong clock drops nothing, and leaves no time in the journal that
could not be taken back. [Decision 0017](docs/decisions/0017-a-clock-that-jumped.md) says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from math import inf

JUMP_MS_MAX = 24 * 60 * 60 * 1000  # longer than a night's stop, and than most mistakes with time zones
_LEAN = 0.1
_FRESH_S = 0.0002  # asked again within this, the answer is the same: every command asks


# Seconds since the machine started, those in which it slept included where the system counts them.
boottime: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class Clock:
    """`start_ms` is the last time the shard has already seen; the clock starts no earlier.

    `expected_ms` is what the time should be now, where something else than the wall clock knows it; then the clock
    starts there. `jump_ms_max` 0: any wall clock is believed.
    """

    def __init__(
        self,
        start_ms: int = 0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = boottime,
        *,
        expected_ms: float | None = None,
        jump_ms_max: int = JUMP_MS_MAX,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._limit = jump_ms_max or inf
        self._at = monotonic()
        wall_ms = wall() * 1000
        if not start_ms or self._limit == inf:
            self._now = max(wall_ms, float(start_ms))
        elif expected_ms is not None:
            self._now = max(expected_ms, float(start_ms))
        else:
            self._now = float(start_ms) if wall_ms - start_ms > self._limit else max(wall_ms, float(start_ms))

    def now_ms(self) -> int:
        at = self._monotonic()
        if at < self._at + _FRESH_S:
            return int(self._now)
        passed = (at - self._at) * 1000
        self._at = at
        drift = self._wall() * 1000 - (self._now + passed)
        if -self._limit <= drift <= self._limit:
            lean = passed * _LEAN
            self._now += passed + max(-lean, min(lean, drift))
        else:
            self._now += passed
        return int(self._now)

    @property
    def drift_ms(self) -> int:
        """How far the wall clock is ahead of this one."""
        self.now_ms()
        return int(self._wall() * 1000 - self._now)

    @property
    def held(self) -> bool:
        """The wall clock is too far off to be believed."""
        return abs(self.drift_ms) > self._limit

    def trust(self, jump_ms_max: int) -> None:
        """Sets how far the wall clock may be off. One ahead that is believed by that is followed at once."""
        held = self.held
        self._limit = jump_ms_max or inf
        if held and not self.held:
            self._now = max(self._now, self._wall() * 1000)

"""How the disk does: whether a sync may be waited for on the spot, or a thread should do the waiting."""

from __future__ import annotations

QUICK_S = 0.003  # a sync that takes longer is slow
PAUSE_S_MIN, PAUSE_S_MAX = 0.5, 16.0


class Pace:
    """For a while after a slow sync the disk counts as slow.

    The while doubles each time it was too short, so that a disk with a slow sync now and then is waited for on the spot
    only now and then as well. After as long again without one it is short once more.
    """

    __slots__ = ("_pause_s", "_slow_until")

    def __init__(self) -> None:
        self._pause_s = PAUSE_S_MIN
        self._slow_until = 0.0

    def quick(self, now: float) -> bool:
        return now >= self._slow_until

    def synced(self, began: float, ended: float) -> None:
        """Takes note of a sync."""
        if ended - began <= QUICK_S:
            return
        quiet_s = began - self._slow_until
        if quiet_s > self._pause_s:
            self._pause_s = PAUSE_S_MIN
        elif quiet_s >= 0:
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        self._slow_until = ended + self._pause_s

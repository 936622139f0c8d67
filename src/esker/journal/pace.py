"""How the disk does: whether a write may be waited for on the spot, or a thread should do the waiting."""

from __future__ import annotations

QUICK_S = 0.003  # one write may take so long without being held against the disk
USUAL_S = 0.001  # and most of them so long
_WEIGHT = 1 / 32  # of the newest write in what is usual
SLOWNESS = 200  # time kept away from the disk for each bit of time lost to it: half a percent of the time at most
CREDIT_S = 5.0  # of time that went well, at most


class Pace:
    """After a slow write the disk is kept away from, for so much longer as the write was slower.

    Time that went well since the last such pause counts against the next one: a disk that is slow now and then is
    waited for on the spot nearly always, one that is slow each time nearly never. Only writes on the spot tell how the
    disk does; what a thread measures has its wait for the interpreter in it.
    """

    __slots__ = ("_slow_until", "_usual_s")

    def __init__(self) -> None:
        self._usual_s = 0.0
        self._slow_until = 0.0

    def quick(self, now: float) -> bool:
        return now >= self._slow_until

    def wrote(self, began: float, ended: float) -> None:
        """Takes note of a write on the spot."""
        took_s = ended - began
        self._usual_s += (min(took_s, QUICK_S) - self._usual_s) * _WEIGHT
        lost_s = took_s - QUICK_S if self._usual_s <= USUAL_S else took_s
        if lost_s > 0:
            well_since = max(self._slow_until, began - CREDIT_S)
            self._slow_until = max(ended, well_since + SLOWNESS * lost_s)

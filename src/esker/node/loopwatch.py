"""How long the event loop makes others wait: the lateness of a timer that asks to be called every few milliseconds."""

from __future__ import annotations

import asyncio
from array import array

_EVERY_S = 0.005
_SAMPLES = 20_000  # about two minutes


class LoopWatch:
    """Keeps the latest samples, in microseconds, apart for the time while a checkpoint runs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._late = {False: array("L"), True: array("L")}
        self._next = {False: 0, True: 0}
        self.checkpointing = False
        self._due = self._loop.time() + _EVERY_S
        self._timer = self._loop.call_at(self._due, self._sample)

    def _sample(self) -> None:
        now = self._loop.time()
        late = max(0, int((now - self._due) * 1e6))
        samples = self._late[self.checkpointing]
        if len(samples) < _SAMPLES:
            samples.append(late)
        else:
            position = self._next[self.checkpointing]
            samples[position] = late
            self._next[self.checkpointing] = (position + 1) % _SAMPLES
        self._due = now + _EVERY_S
        self._timer = self._loop.call_at(self._due, self._sample)

    def facts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for during, prefix in ((False, "loop_stall"), (True, "loop_stall_checkpoint")):
            samples = sorted(self._late[during]) or [0]
            found[f"{prefix}_p50_us"] = samples[len(samples) // 2]
            found[f"{prefix}_p99_us"] = samples[int(len(samples) * 0.99)]
            found[f"{prefix}_max_us"] = samples[-1]
        return found

    def close(self) -> None:
        self._timer.cancel()

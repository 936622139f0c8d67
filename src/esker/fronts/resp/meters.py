"""What the front measures: calls and time of each command, slow commands, and spikes of latency.

All of it is fed by one reading of the clock per command. Times are in the unit the reports use.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

ARGUMENTS_SHOWN_MAX: Final = 32  # as Redis: an entry of the slow log stays small whatever the command was
ARGUMENT_BYTES_SHOWN_MAX: Final = 128
SAMPLES_MAX: Final = 160  # as Redis: latency samples kept for one event


class SlowCommand(NamedTuple):
    id: int
    time_s: int
    duration_us: int
    arguments: tuple[bytes, ...]
    address: str
    name: bytes


class SlowLog:
    """The latest commands that took longer than the threshold, newest first."""

    def __init__(self, entries_max: int) -> None:
        self._entries: deque[SlowCommand] = deque(maxlen=entries_max)
        self._next_id = 0

    def __len__(self) -> int:
        return len(self._entries)

    def resize(self, entries_max: int) -> None:
        self._entries = deque(list(self._entries)[:entries_max], maxlen=entries_max)

    def add(self, arguments: Sequence[bytes], duration_us: int, address: str, name: bytes) -> None:
        shown = tuple(_shortened(argument) for argument in arguments[:ARGUMENTS_SHOWN_MAX])
        if len(arguments) > ARGUMENTS_SHOWN_MAX:
            left_out = len(arguments) - ARGUMENTS_SHOWN_MAX + 1
            shown = (*shown[:-1], b"... (%d more arguments)" % left_out)
        # deque(maxlen) drops from the other end, so the newest go to the left.
        self._entries.appendleft(SlowCommand(self._next_id, int(time.time()), duration_us, shown, address, name))
        self._next_id += 1

    def latest(self, count: int) -> list[SlowCommand]:
        entries = list(self._entries)
        return entries if count < 0 else entries[:count]

    def reset(self) -> None:
        self._entries.clear()


def _shortened(argument: bytes) -> bytes:
    if len(argument) <= ARGUMENT_BYTES_SHOWN_MAX:
        return argument
    left_out = len(argument) - ARGUMENT_BYTES_SHOWN_MAX
    return argument[:ARGUMENT_BYTES_SHOWN_MAX] + b"... (%d more bytes)" % left_out


class Rates:
    """What happened per second, between the latest two looks at the totals."""

    def __init__(self) -> None:
        self.commands = self.bytes_in = self.bytes_out = 0
        self._totals = (0, 0, 0)
        self._at = time.monotonic()

    def look(self, commands: int, bytes_in: int, bytes_out: int) -> None:
        now, totals = time.monotonic(), (commands, bytes_in, bytes_out)
        passed = max(now - self._at, 0.001)
        grown = [max(new - old, 0) for new, old in zip(totals, self._totals, strict=True)]  # totals may be reset
        self.commands, self.bytes_in, self.bytes_out = (int(amount / passed) for amount in grown)
        self._totals, self._at = totals, now


class Sample(NamedTuple):
    time_s: int
    latency_ms: int


class LatencyMonitor:
    """Samples at or above the threshold, by event: `command` (executing one), `durability` (replies that waited).

    At most one sample per second and event is kept, the worst, as in Redis.
    """

    def __init__(self) -> None:
        self._samples: dict[str, deque[Sample]] = {}
        self._worst: dict[str, int] = {}

    @property
    def events(self) -> list[str]:
        return sorted(self._samples)

    def add(self, event: str, latency_ms: int) -> None:
        now = int(time.time())
        samples = self._samples.setdefault(event, deque(maxlen=SAMPLES_MAX))
        self._worst[event] = max(latency_ms, self._worst.get(event, 0))
        if samples and samples[-1].time_s == now:
            samples[-1] = Sample(now, max(latency_ms, samples[-1].latency_ms))
        else:
            samples.append(Sample(now, latency_ms))

    def history(self, event: str) -> Sequence[Sample]:
        return tuple(self._samples.get(event, ()))

    def worst_ms(self, event: str) -> int:
        return self._worst.get(event, 0)

    def reset(self, events: Sequence[str] = ()) -> int:
        chosen = [event for event in (events or self.events) if event in self._samples]
        for event in chosen:
            del self._samples[event], self._worst[event]
        return len(chosen)

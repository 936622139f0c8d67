"""Claims that share: those that come within a topic's `claim_jitter_ms` of each other get equal parts.

The problem: first come, first served lets the first of ten workers take all that is there. The idea: the first claim
opens a window; when it ends, everybody who came meanwhile, and every worker who waits for jobs of the topic, is served
in one pass (`LeaseCohort`) that deals jobs out in rounds.

A claim that was cancelled before the window ended gets nothing. A window is opened by jobs, too, when workers wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from esker.engine import commands
from esker.engine.replies import Reply
from esker.errors import Refusal

Answer = Callable[[Reply], None]

CLAIMS_PER_COHORT_MAX = 10_000  # claims of one pass; one more ends the window early


class Claim:
    """One claim that waits for its window to end."""

    __slots__ = ("command", "deliver", "live")

    def __init__(self, command: commands.Lease, deliver: Answer) -> None:
        self.command = command
        self.deliver = deliver
        self.live = True

    def cancel(self) -> None:
        self.live = False

    def answer(self, reply: Reply) -> None:
        if self.live:
            self.live = False
            self.deliver(reply)


class Cohorts:
    """`end` is called with a topic and its claims when a window ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, end: Callable[[bytes, list[Claim]], None]) -> None:
        self._loop = loop
        self._end = end
        self._windows: dict[bytes, tuple[asyncio.TimerHandle, list[Claim]]] = {}

    def join(self, claim: Claim, jitter_ms: int) -> None:
        topic = claim.command.topic
        self.open(topic, jitter_ms)
        claims = self._windows[topic][1]
        claims.append(claim)
        if len(claims) >= CLAIMS_PER_COHORT_MAX:
            self._windows[topic][0].cancel()
            self._ended(topic)

    def open(self, topic: bytes, jitter_ms: int) -> None:
        """Begins a window, unless one is open."""
        if topic not in self._windows:
            timer = self._loop.call_later(jitter_ms / 1000, self._ended, topic)
            self._windows[topic] = (timer, [])

    def close(self, refusal: Refusal) -> None:
        """Nobody is served any more: all who wait are refused."""
        windows, self._windows = self._windows, {}
        for timer, claims in windows.values():
            timer.cancel()
            for claim in claims:
                claim.answer(refusal)

    def _ended(self, topic: bytes) -> None:
        _, claims = self._windows.pop(topic)
        self._end(topic, [claim for claim in claims if claim.live])

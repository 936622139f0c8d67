"""Whose records are delivered first when the node is busy. Order, retention and what is visible never depend on it.

A topic that was consumed lately is worth up to `AUTO_MAX`, halving every `HALF_LIFE_MS`; an operator's own value comes
instead of that. Whoever waits climbs, so that nobody waits for ever. Integers only: it is asked on every delivery.
"""

from __future__ import annotations

from esker.engine.config import TopicConfig

MANUAL_MAX = 1000
AUTO_MAX = 500  # a topic just consumed is worth half the range an operator has
HALF_LIFE_MS = 30_000
AUTO_FLOOR_MS = 300_000  # consumed longer ago than this is worth nothing
AGE_RATE = 100  # a second of waiting
AGE_CAP_MS = 10_000

_STEPS = 64
_ONE = 16  # bits behind the point
_HALVES = tuple(round(2 ** (-step / _STEPS) * (1 << _ONE)) for step in range(_STEPS))  # 2^-x for x in [0, 1)


def effective_priority(config: TopicConfig, consumed_ms: int, now: int) -> int:
    """Of a topic that was last consumed at `consumed_ms` (0: never), for one who does not wait."""
    if config.priority is not None:
        return max(-MANUAL_MAX, min(MANUAL_MAX, config.priority))
    if not config.auto_priority or not consumed_ms:
        return 0
    return recency(now - consumed_ms)


def delivery_priority(config: TopicConfig, consumed_ms: int, waiting_since_ms: int, now: int) -> int:
    """The same for someone who has waited since then: the highest is served first."""
    waited_ms = max(0, min(now - waiting_since_ms, AGE_CAP_MS))
    return effective_priority(config, consumed_ms, now) + AGE_RATE * waited_ms // 1000


def recency(elapsed_ms: int) -> int:
    """What it is worth to have been consumed so long ago."""
    if elapsed_ms >= AUTO_FLOOR_MS:
        return 0
    halvings, rest_ms = divmod(max(0, elapsed_ms), HALF_LIFE_MS)
    shift = _ONE + halvings
    return (AUTO_MAX * _HALVES[rest_ms * _STEPS // HALF_LIFE_MS] + (1 << (shift - 1))) >> shift

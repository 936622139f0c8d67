"""How long a failed job waits before it is tried again."""

from __future__ import annotations

from esker.engine.config import Backoff


def backoff_ms(policy: Backoff, attempt: int, chance: float) -> int:
    """The delay after failure number `attempt` (1 is the first); `chance` in [0, 1) draws the jitter.

    With jitter 1 ("full") the delay is anywhere in (0, d]; with 0 it is exactly d.
    """
    if policy.base_ms <= 0:
        return 0
    # The exponent is bounded before the power is taken: 1000 failures must not make a float overflow.
    delay: float = policy.cap_ms
    if policy.factor <= 1 or attempt < 64:
        delay = min(delay, policy.base_ms * policy.factor ** min(attempt - 1, 63))
    return max(1, round(delay * (1 - policy.jitter * chance)))

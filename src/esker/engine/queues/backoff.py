"""How long a failed job waits before it is tried again."""

from __future__ import annotations

from math import log

from esker.engine.config import Backoff


def backoff_ms(policy: Backoff, attempt: int, chance: float) -> int:
    """The delay after failure number `attempt` (1 is the first); `chance` in [0, 1) draws the jitter.

    With jitter 1 ("full") the delay is anywhere in (0, d]; with 0 it is exactly d.
    """
    if policy.base_ms <= 0:
        return 0
    # Whether the cap is reached is asked of the logarithms: the power itself would overflow after 1000 failures.
    if (attempt - 1) * log(policy.factor) >= log(policy.cap_ms / policy.base_ms):
        delay: float = policy.cap_ms
    else:
        delay = policy.base_ms * policy.factor ** (attempt - 1)
    return max(1, round(delay * (1 - policy.jitter * chance)))

"""What the Redis front itself can be told, with Redis's names in `commands/config.py`. All may change while it runs."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(slots=True)
class RespOptions:
    clients_max: int = 10_000
    idle_timeout_s: int = 0  # 0: an idle client may stay
    tcp_keepalive_s: int = 300
    accept_backlog: int = 511

    bulk_bytes_max: int = 32 * MIB  # of one argument, and so of one job

    # A client that does not read its replies is cut when this much waits for it at once …
    output_bytes_max: int = 256 * MIB
    # … or when this much waits for this long. (Redis leaves normal clients unbounded; a broker shares its memory.)
    output_soft_bytes: int = 64 * MIB
    output_soft_s: int = 60
    # A monitor that lags is cut sooner: it costs every other client.
    monitor_bytes_max: int = 32 * MIB

    slowlog_slower_than_us: int = 10_000  # negative: nothing is noted; 0: everything
    slowlog_entries_max: int = 128
    latency_threshold_ms: int = 0  # 0: latency is not watched


# Spellings (ADDJOB, addjob, AddJob …) remembered beside the upper-case names.
SPELLINGS_MAX = 1024

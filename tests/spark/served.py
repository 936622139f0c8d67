"""What a worker gets from a queue."""

from __future__ import annotations

from collections.abc import Callable

from tests.spark.lake import Broker


def served(broker: Broker, queue: str, most: int = 1000) -> list[bytes]:
    """The payloads of its jobs, best first; they are leased then."""
    with broker.process.client() as client:
        execute: Callable[..., list[tuple[bytes, bytes, bytes]] | None] = client.execute_command
        return [body for _, _, body in execute("GETJOB", "NOHANG", "COUNT", most, "FROM", queue) or []]

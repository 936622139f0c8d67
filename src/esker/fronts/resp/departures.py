"""Replies on their way out, kept together by the gate they wait for: one subscription for all clients of a turn."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

from esker.fronts.resp.errors import undurable
from esker.node.interface import Gate

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection
    from esker.fronts.resp.server import RespServer


class Departure:
    __slots__ = ("_began_ns", "_server", "gate", "parcels")

    def __init__(self, server: RespServer, gate: Gate) -> None:
        self._server = server
        self._began_ns = perf_counter_ns()
        self.gate = gate
        self.parcels: list[tuple[Connection, bytes, int]] = []  # for whom, what, and how many replies that are
        gate.subscribe(self._leave)

    def _leave(self, error: BaseException | None) -> None:
        server = self._server
        spent_ns = perf_counter_ns() - self._began_ns
        if 0 < server.latency_ns <= spent_ns:
            server.latency.add("durability", spent_ns // 1_000_000)
        if error is not None:
            server.write_failed = True
            self.parcels = [(client, undurable(error) * count, count) for client, _, count in self.parcels]
        server.answered_together = len(self.parcels) > 1
        size = 0
        for client, data, _ in self.parcels:
            transport = client.transport
            if transport is None or client.congestion is not None or client.closing:
                client.settle(data)
            else:  # the same for nearly everybody, without a call
                client.unsettled -= 1
                size += len(data)
                transport.write(data)
        server.bytes_out += size

"""The collector is told to look rarely (cli/serve.py), which is right only while serving leaves no cycles behind."""

from __future__ import annotations

import gc

from esker.testing import Broker
from tests.fronts.resp.wire import Simple, Wire


def _serve(wire: Wire, rounds: int) -> None:
    for _ in range(rounds):
        assert isinstance(wire("ADDJOB", "q", "plain", 0), Simple)
        assert isinstance(wire("ADDJOB", "q", "with options", 0, "PRIORITY", 5, "DELAY", 1), Simple)
        jobs = wire("GETJOB", "COUNT", 2, "FROM", "q")
        assert isinstance(jobs, list)
        assert isinstance(jobs[0], list)
        assert isinstance(jobs[0][1], bytes)
        assert wire("ACKJOB", jobs[0][1]) == 1
        wire("GETJOB", "TIMEOUT", 1, "FROM", "an empty queue")
        wire("ADDJOB", "q", "refused", 0, "TTL", "x")


def _checkpoint(wire: Wire) -> None:
    before = _checkpoints(wire)
    assert isinstance(wire("BGREWRITEAOF"), Simple)
    while _checkpoints(wire) == before:
        _serve(wire, 1)


def _checkpoints(wire: Wire) -> bytes:
    facts = wire("INFO", "loop")
    assert isinstance(facts, bytes)
    return next(line for line in facts.splitlines() if line.startswith(b"checkpoints_done:"))


def test_serving_and_checkpoints_leave_nothing_for_the_collector() -> None:
    with Broker() as broker, Wire(broker.resp_port) as wire:
        _serve(wire, 5)
        _checkpoint(wire)
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            _serve(wire, 50)
            _checkpoint(wire)
            gc.collect()
            kinds = {type(garbage).__name__ for garbage in gc.garbage}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert not kinds & {"Departure", "Batch", "Waiter", "Connection", "method", "list", "dict"}, kinds

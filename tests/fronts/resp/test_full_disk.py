"""A full disk stops what is new and nothing else."""

from __future__ import annotations

import pytest

from esker.testing import Broker
from esker.testing.faults import FaultyDisk
from tests.fronts.resp.wire import Simple, Wire


@pytest.mark.timeout(60)
def test_a_full_disk_refuses_new_jobs_and_lets_work_drain() -> None:
    disk = FaultyDisk()
    with Broker(disk=disk, segment_size="256kb") as broker, Wire(broker.resp_port) as wire:
        for number in range(10):
            assert isinstance(wire("ADDJOB", "q", f"job {number}", 0), Simple)
        disk.limit_space(0)
        refused = _until_refused(wire)
        assert refused.startswith("MISCONF ")
        assert "disk" in refused
        jobs = wire("GETJOB", "COUNT", 5, "FROM", "q")
        assert isinstance(jobs, list)
        for job in jobs:
            assert isinstance(job, list)
            assert isinstance(job[1], bytes)
            assert wire("ACKJOB", job[1]) == 1
        disk.limit_space(None)
        _until_accepted(wire)


def _until_refused(wire: Wire) -> str:
    """The node looks at its disk once a second; waiting for a job that does not come is the pause between tries."""
    while isinstance(reply := wire("ADDJOB", "other", "new", 0), Simple):
        wire("GETJOB", "TIMEOUT", 100, "FROM", "nothing here")
    return str(reply)


def _until_accepted(wire: Wire) -> None:
    while not isinstance(wire("ADDJOB", "other", "new", 0), Simple):
        wire("GETJOB", "TIMEOUT", 100, "FROM", "nothing here")

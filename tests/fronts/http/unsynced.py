"""A record whose sync is held back, and somebody who wants to read it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting

import pytest

from esker.testing.broker import Broker
from esker.testing.faults import FaultyDisk
from tests.fronts.http.web import Web


def read_once_synced(read: Callable[[Web, str], list[dict[str, object]]]) -> list[dict[str, object]]:
    """What `read` gives of the topic; it must not come back before the one record of it is on disk."""
    disk = FaultyDisk()
    with Broker(disk=disk) as broker, Web(broker.http_url) as web, Web(broker.http_url) as other:
        web.put("safe", durable=True)
        with ThreadPoolExecutor(3) as pool:
            with disk.hold_syncs(of=".segment") as held:
                writing = pool.submit(web.write, "safe", "x")
                held.wait_begun()
                reading = pool.submit(read, other, "safe")
                with pytest.raises(StillWaiting):
                    reading.result(timeout=0.3)
                held.release()
            assert writing.result(10)["seqs"] == [1]
            return reading.result(10)

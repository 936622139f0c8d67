"""Many records through a capped topic, with a watcher that cannot keep up: memory stays where it is, no loss is silent.

SOAK_RECORDS sets how many; memory is compared between a third of the way and the end.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from pathlib import Path

import pytest

from tests.contracts.http.api import Api, seqs, whole
from tests.contracts.http.events import Events
from tests.crash.process import NodeProcess

RECORDS = int(os.environ.get("SOAK_RECORDS", "500000"))
CAP = 100_000
BATCH = 500
GROWTH_MAX = 1.2


class SlowWatcher(threading.Thread):
    """Reads a frame, then rests. Every seq it is not shown must lie in a gap it was told of."""

    def __init__(self, port: int, rest_s: float) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._rest_s = rest_s
        self.full_speed = threading.Event()
        self.last = 0
        self.seen = 0
        self.gaps = 0
        self.failure: str | None = None

    def run(self) -> None:
        try:
            with Api(self._port) as api:
                wid = api.ask("POST", "/watch", {"topics": {"soak": {}}, "limit": 100})["wid"]
                last_id: str | None = None
                while self.last < RECORDS:
                    last_id = self._follow(api, f"/watch/{wid}", last_id)
        except AssertionError as error:
            self.failure = str(error)

    def _follow(self, api: Api, path: str, last_id: str | None) -> str | None:
        """Until the stream ends: the node may cut off one who is too slow."""
        with Events(api, path, last_id=last_id) as events:
            while (frame := events.any()) is not None and self.last < RECORDS:
                if frame.kind == "tombstone":
                    assert frame.data["gap_from"] == self.last + 1, f"after {self.last}: {frame}"
                    self.last = whole(frame.data, "gap_to")
                    self.gaps += 1
                elif frame.kind == "record":
                    found = seqs(frame.data)
                    assert found == list(range(self.last + 1, self.last + 1 + len(found))), (
                        f"after {self.last}: {found}"
                    )
                    self.last, self.seen = found[-1], self.seen + len(found)
                last_id = frame.id or last_id
                if not self.full_speed.is_set():
                    time.sleep(self._rest_s)
        return last_id


def _resident_bytes(node: NodeProcess, data: Path) -> int:
    pid = json.loads((data.parent / "ports.json").read_text())["pid"]
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_memory_stays_level_while_records_pass_through_a_capped_topic_and_a_slow_watcher_misses_none_silently(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    # Checkpoints that come and go within the first third, so that their memory is part of both figures.
    often = ("--set", "checkpoint_interval_s=1", "--set", "checkpoint_after=4mb")
    with NodeProcess(data, *often) as node, Api(node.http_port) as api:
        api.put("soak", cap_records=CAP)
        watcher = SlowWatcher(node.http_port, rest_s=0.05)
        watcher.start()
        at_a_third = 0
        for start in range(0, RECORDS, BATCH):
            api.write("soak", *({"n": start + n, "pad": "x" * 120} for n in range(BATCH)))
            if not at_a_third and start >= max(RECORDS // 3, CAP):
                at_a_third = _resident_bytes(node, data)
        at_the_end = _resident_bytes(node, data)
        state = api.state("soak")
        assert (state["count"], state["head_seq"]) == (min(CAP, RECORDS), RECORDS)
        watcher.full_speed.set()
        watcher.join(120)
        assert watcher.failure is None, watcher.failure
        assert watcher.last == RECORDS
        if RECORDS > 3 * CAP:
            assert watcher.gaps, "the watcher was not slow enough for the test to mean anything"
        assert at_the_end <= at_a_third * GROWTH_MAX, (
            f"{at_a_third >> 20} MiB at a third, {at_the_end >> 20} at the end"
        )

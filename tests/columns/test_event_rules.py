"""The rows of a history tell enough: who has nothing else knows every job, and can check every promise."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from random import Random

import pytest

from esker.columns.eventnames import Names
from esker.columns.events import EventColumns
from esker.engine.events import decode_batch
from esker.engine.queues.job import JobState
from tests.engine.rig import Rig
from tests.properties.traffic import live

Row = dict[str, object]
SIGN = {"min": 1, "max": -1, "fifo": 0}


@dataclass
class Told:
    """A job as rows tell it. `lease` "": none; `due`: of a delay, a lease or a withdrawal."""

    priority: int
    due: int
    most: int | None
    once: bool
    created: int
    state: str = "ready"
    lease: str = ""
    attempts: int = 0


class Auditor:
    """Follows rows in order, one at a time, and looks at nothing else."""

    def __init__(self) -> None:
        self.topics: dict[int, Row] = {}
        self.jobs: dict[tuple[int, int, int], Told] = {}
        self.next: dict[tuple[int, int], int] = {}
        self.created: dict[tuple[int, int, int], int] = {}  # a job that is replayed keeps its time

    def see(self, row: Row) -> None:
        kind, number = str(row["kind"]), _number(row["topic_number"])
        if kind in ("TopicCreated", "TopicConfigured"):
            self.topics[number] = json.loads(str(row["detail"]))
        elif kind == "TopicDeleted":
            self.jobs = {place: job for place, job in self.jobs.items() if place[0] != number}
        elif kind == "Purged":
            start, end = (number, row["partition"], 0), (number, row["partition"], row["seq"])
            self.jobs = {place: job for place, job in self.jobs.items() if not start <= place < end}
        elif self.topics.get(number, {}).get("type") == "queue" and row["seq"] is not None:
            place = number, _number(row["partition"]), _number(row["seq"])
            if kind in ("Enqueued", "JobsEnqueued", "JobReplayed"):
                self._new(kind, place, row)
            elif kind in ("JobLeased", "JobAcked", "JobReturned", "LeaseExtended", "JobWithdrawn"):
                self._moved(kind, place, row)
            elif kind == "JobReprioritised":
                self.jobs[place].priority = _number(row["priority"])
            elif kind == "JobRemoved":
                del self.jobs[place]

    def _new(self, kind: str, place: tuple[int, int, int], row: Row) -> None:
        assert place not in self.jobs, "a seq was given twice"
        if kind != "JobReplayed":
            assert place[2] == self.next.get(place[:2], 1), "seqs are contiguous"
            self.next[place[:2]] = place[2] + 1
        detail = json.loads(str(row["detail"])) if row["detail"] is not None else {}
        self.jobs[place] = Told(
            _number(row["priority"]), _ms(row["due"]), detail.get("max_deliveries"), detail.get("retry_ms") == 0,
            self.created.setdefault(place, _ms(row["time"])),
        )  # fmt: skip

    def _moved(self, kind: str, place: tuple[int, int, int], row: Row) -> None:
        job = self.jobs[place]
        if kind == "JobLeased":
            self._leased(place, job, row)
        elif kind == "JobAcked":
            assert row["lease"] is None or row["lease"] == job.lease, "no ack without its lease"
            del self.jobs[place]
        elif kind == "LeaseExtended":
            job.state, job.due = "leased", _ms(row["due"])
        else:
            job.state = "ready" if kind == "JobReturned" else "withdrawn"
            job.lease, job.due = "", _ms(row["due"])

    def _leased(self, place: tuple[int, int, int], job: Told, row: Row) -> None:
        topic, now = self.topics[place[0]], _ms(row["time"])
        assert not job.lease, "never two live leases"
        ready = [
            (each.priority * SIGN[str(topic["mode"])], each.created, where[2], where[1])
            for where, each in self.jobs.items()
            if where[0] == place[0] and each.state == "ready" and each.due <= now
        ]
        if len({partition for *_, partition in ready}) == 1:  # within a partition, seqs are the order of arrival
            ready = [(priority, job.created, seq, partition) for priority, _, seq, partition in ready]
        mine = (job.priority * SIGN[str(topic["mode"])], job.created, place[2], place[1])
        assert mine == min(ready), "a pop outside the top"
        assert _number(row["attempts"]) == job.attempts + 1
        job.attempts += 1
        most = _number(topic["max_deliveries"]) if job.most is None else job.most
        assert not topic["dead_letter"] or not most or job.attempts <= most or row["reason"] == "no_dead_letter"
        assert job.once == (row["due"] is None), "at most once has no deadline"
        job.state = "spent" if job.once else "leased"
        job.lease, job.due = str(row["lease"]), _ms(row["due"])


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _ms(value: object) -> int:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else 0


@pytest.mark.parametrize("seed", range(8))
def test_rows_alone_tell_the_state_of_every_job(seed: int) -> None:
    rig = Rig(seed=seed)
    live(rig, Random(seed), 400)
    rig.pass_ms(0)
    columns, auditor = EventColumns(Names()), Auditor()
    for position, batch in enumerate(rig.batches, 1):
        columns.add(position, decode_batch(batch))
    for row in columns.take().to_pylist():
        auditor.see(row)
    names = {"delayed": "ready", "ready": "ready", "leased": "leased", "spent": "spent", "withdrawn": "withdrawn"}
    there = {
        (topic.number, partition.index, job.seq): (
            names[JobState(job.state).name.lower()], job.priority, job.attempts, f"{job.token:x}" if job.token else "",
        )
        for topic in rig.machine.topics.values()
        for partition in topic.partitions
        for job in partition.jobs.values()
    }  # fmt: skip
    told = {place: (job.state, job.priority, job.attempts, job.lease) for place, job in auditor.jobs.items()}
    assert told == there
    assert len(there) > 5

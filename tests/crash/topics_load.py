"""Writers, deleters and workers over HTTP, on topics of every durability class, until the node dies.

Every writer keeps its own connection. The topics and what is promised of each are in `World`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec

from tests.crash.promises import Jobs, Keeps, Log
from tests.crash.talk import Acked, Claim, Deleted, Done, Record, State, Talk, Wrote, every_record

CLASSES = {"ephemeral": Keeps.NONE, "memory": Keeps.SOME, "disk": Keeps.SETTLED, "fsync": Keeps.ALL}
WRITERS_EACH = 2
COPIES = "copies"  # of the fsync topic, each exactly once
MIRROR = "mirror"  # of the fsync topic, each at least once
TAPPED = "tapped"  # of the disk topic, each exactly once; its source may lose what it has


def _a_log_per_class() -> dict[str, Log]:
    return {name: Log(name, keeps) for name, keeps in CLASSES.items()}


@dataclass
class World:
    dice: random.Random
    logs: dict[str, Log] = field(default_factory=_a_log_per_class)
    pruned: Log = field(default_factory=lambda: Log("pruned", Keeps.ALL))
    jobs: Jobs = field(default_factory=lambda: Jobs("jobs", Keeps.ALL))
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    done: int = 0  # answers, over all

    async def make(self, port: int) -> None:
        talk = await Talk.to(port)
        for name in self.logs:
            await talk.ask("PUT", f"/v0/topics/{name}", {"durability": name}, Done)
        await talk.ask("PUT", "/v0/topics/pruned", {"durability": "fsync"}, Done)
        await talk.ask("PUT", "/v0/topics/jobs", {"type": "queue", "durable": True, "lease_ms": 60_000}, Done)
        once = {"source": "fsync", "dest": COPIES, "guarantee": "exactly_once"}
        await talk.ask("PUT", "/v0/routers/fsync-%3Ecopies", once, Done)
        await talk.ask("PUT", f"/v0/topics/{MIRROR}", {"durability": "fsync"}, Done)
        await talk.ask("PUT", "/v0/routers/fsync-%3Emirror", {"source": "fsync", "dest": MIRROR}, Done)
        await talk.ask("PUT", f"/v0/topics/{TAPPED}", {"durability": "fsync"}, Done)
        tap = {"source": "disk", "dest": TAPPED, "guarantee": "exactly_once"}
        await talk.ask("PUT", "/v0/routers/disk-%3Etapped", tap, Done)
        await talk.close()

    async def run(self, port: int) -> None:
        """Until the node dies."""
        work = [
            self._write(port, log) for log in (*self.logs.values(), self.pruned, self.jobs) for _ in range(WRITERS_EACH)
        ]
        await asyncio.gather(*work, self._delete(port), self._work(port, "w1"), self._work(port, "w2"))

    async def _write(self, port: int, log: Log) -> None:
        async with _until_death(port) as talk:
            while True:
                write = next(self.numbers)
                numbers = [write, *(next(self.numbers) for _ in range(self.dice.choice((0, 0, 2))))]
                log.sends(write, numbers)
                wrote = await talk.ask("POST", f"/v0/topics/{log.name}", _body(write, numbers), Wrote)
                assert not wrote.deduped
                log.answered_anew(write, wrote.seqs)
                self.done += 1

    async def _delete(self, port: int) -> None:
        """By tag, by seq, and by both."""
        log = self.pruned
        log.deleting = False  # in this life
        async with _until_death(port) as talk:
            while True:
                await asyncio.sleep(0.005)
                last = max(log.acked, default=0)
                if last <= 20:
                    continue
                tag = f"t{self.dice.randrange(5)}"
                way = self.dice.randrange(3)
                below = (last - 20, last + 1, last)[way]
                ways: list[dict[str, object]] = [
                    {"before_seq": below},
                    {"match": tag},
                    {"match": ["tag", "Glob", f"{tag}*"], "before_seq": below},
                ]
                leaving = {
                    number for seq, number in log.acked.items() if seq < below and (way == 0 or _tag(number) == tag)
                }
                # What is being written, or will be before the answer, may be in time to be deleted too.
                log.leaving |= leaving | {one for write in log.open.values() for one in write}
                log.deleting = True
                await talk.ask("POST", "/v0/topics/pruned/delete", ways[way], Deleted)
                log.deleting = False
                log.gone |= leaving
                self.done += 1

    async def _work(self, port: int, node: str) -> None:
        log = self.jobs
        async with _until_death(port) as talk:
            while True:
                claim = await talk.ask("POST", "/v0/topics/jobs/claim", {"node": node, "max": 3}, Claim)
                for job in claim.claimed:
                    log.claimed(job.seq, job.data)
                chosen = claim.claimed[: self.dice.randint(0, 3)]  # the others stay in flight
                if not chosen:
                    continue
                numbers = {job.data for job in chosen}
                log.leaving |= numbers
                body = {
                    "node": node,
                    "seqs": [job.seq for job in chosen],
                    "lease_ids": [job.lease_id for job in chosen],
                }
                acked = await talk.ask("POST", "/v0/topics/jobs/ack", body, Acked)
                assert acked == Acked(acked=len(chosen), skipped=[])
                log.gone |= numbers
                self.done += 1

    async def check(self, port: int) -> None:
        """After a restart, before any new write."""
        talk = await Talk.to(port)
        for log in (*self.logs.values(), self.pruned, self.jobs):
            found, gaps = await every_record(talk, log.name)
            state = await talk.ask("GET", f"/v0/topics/{log.name}?touch=false", None, State)
            log.check(found, gaps, state)
            if log is self.jobs:
                assert state.queue is not None
                assert (state.queue.ready, state.queue.in_flight) == (len(found), 0), "a lease outlived the process"
            elif log.name in CLASSES:
                assert state.config["durability"] == msgspec.Raw(f'"{log.name}"'.encode())
                if log.name == "fsync":
                    await self._check_copies(talk, found)
                if log.name == "disk":
                    await self._check_tapped(talk, log, found)
        await self._send_again(talk)
        await talk.close()

    async def _check_copies(self, talk: Talk, source: list[Record]) -> None:
        wanted = [record.data for record in source]
        copies, _ = await every_record(talk, COPIES)
        assert [copy.data for copy in copies] == wanted, "exactly once: missing, twice, or out of order"
        origins = [msgspec.json.decode(copy.meta["_topics_router"], type=dict[str, object]) for copy in copies]
        assert [origin["source_seq"] for origin in origins] == [record.seq for record in source]
        mirrored, _ = await every_record(talk, MIRROR)
        first_seen = list(dict.fromkeys(copy.data for copy in mirrored))
        assert first_seen == wanted, "at least once: missing or out of order"

    async def _check_tapped(self, talk: Talk, log: Log, source: list[Record]) -> None:
        copies, _ = await every_record(talk, TAPPED)
        numbers = [copy.data for copy in copies]
        assert len(set(numbers)) == len(numbers), "a copy is there twice"
        assert set(numbers) <= log.sent.keys(), "a copy of what was never sent"
        kept = {record.data for record in source}
        assert [number for number in numbers if number in kept] == [record.data for record in source], "copies missing"

    async def _send_again(self, talk: Talk) -> None:
        """What got no answer is sent again under its key; whether it is new or not, it is there once."""
        for log in self.logs.values():
            for write, numbers in list(log.open.items()):
                if log.keeps is Keeps.ALL:
                    wrote = await talk.ask("POST", f"/v0/topics/{log.name}", _body(write, numbers), Wrote)
                    log.answered(write, wrote.seqs)
        for unsure in (*self.logs.values(), self.pruned, self.jobs):
            unsure.open.clear()


def _body(write: int, numbers: list[int]) -> dict[str, object]:
    records = [{"data": number, "tag": _tag(number)} for number in numbers]
    return {"records": records, "idempotency_key": f"write {write}"}


def _tag(number: int) -> str:
    return f"t{number % 5}"


@contextlib.asynccontextmanager
async def _until_death(port: int) -> AsyncIterator[Talk]:
    with contextlib.suppress(ConnectionError):
        talk = await Talk.to(port)
        try:
            yield talk
        finally:
            with contextlib.suppress(ConnectionError):
                await talk.close()

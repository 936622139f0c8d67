"""What the state machine of queues plays on: the queues there are, the world they live in, and the model beside it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from esker.engine import limits
from esker.engine.commands import Command, CreateTopic, Details, NewJob
from esker.engine.config import Backoff, Discard, Durability, Mode, TopicConfig
from esker.engine.queues import partition, ready
from esker.engine.replies import Reply, TopicView
from esker.errors import Code, Refusal
from esker.store import checkpoint, idempotency, jobs
from tests.engine.rig import START_MS, expect
from tests.properties.model import SPENT, Model, ModelJob
from tests.properties.world import World

# What queues there are. An example plays on one to three of them, so that much happens to few jobs.
QUEUES: dict[bytes, TopicConfig | None] = {
    b"lazy": None,  # made on first use
    b"keyed": TopicConfig(
        mode=Mode.MAX, partitions=3, dead_letter=b"grave", max_deliveries=2,
        backoff=Backoff(base_ms=100, factor=2.0, cap_ms=300, jitter=0.0),
    ),
    b"bounded": TopicConfig(
        mode=Mode.FIFO, durability=Durability.MEMORY, max_in_flight=2, lease_ms=1000, dead_letter=b"grave",
        max_deliveries=1,
    ),
    b"fleeting": TopicConfig(durability=Durability.EPHEMERAL, ttl_ms=5000, idempotency_window_ms=10_000),
    b"disk": TopicConfig(
        durability=Durability.DISK, partitions=2, leases_durable=True, idempotency_window_ms=2000, dead_letter=b"grave",
        max_deliveries=1,
    ),
    b"capped": TopicConfig(cap_records=4, lease_ms=1000, dead_letter=b"grave", max_deliveries=2, leases_durable=True),
    b"strict": TopicConfig(
        cap_records=6, cap_bytes=30, discard=Discard.REJECT, durability=Durability.DISK, ttl_ms=3000,
        idempotency_window_ms=5000,
    ),
}  # fmt: skip
GRAVE = TopicConfig()  # a queue, so that letters can be leased
PASSING_MS = (0, 1, 5, 50, 99, 100, 500, 1000, 1024, 2000, 5000, 30_000, 301_000)

places = st.integers(0, 5)  # of a queue on the stage
picks = st.lists(st.integers(0, 30), min_size=1, max_size=3)
token_kinds = st.sampled_from(["none", "live", "stale"])
details = st.one_of(
    st.none(),
    st.builds(Details, delay_ms=st.sampled_from([0, 0, 1, 50, 1000]), max_deliveries=st.sampled_from([None, 1, 3])),
    st.builds(Details, key=st.sampled_from([b"k1", b"k2", b"k3"]), tag=st.sampled_from([b"", b"t", b"tt"])),
    st.builds(Details, producer=st.just(b"p"), epoch=st.integers(0, 1), sequence=st.integers(0, 3)),
)
new_jobs = st.builds(
    NewJob,
    payload=st.binary(min_size=0, max_size=12),
    priority=st.sampled_from([0, 0, 1, -1, 7, limits.PRIORITY_MIN, limits.PRIORITY_MAX]),
    retry_ms=st.sampled_from([None, None, None, 0, 1, 100, 1000]),
    ttl_ms=st.sampled_from([None, None, 0, 1, 900, 3000]),
    details=details,
)


class Stage(RuleBasedStateMachine):
    """A world, the model of it, and what was told to clients. No rules yet."""

    on_disk = False

    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        self._shrink_limits()
        self.scratch = tempfile.TemporaryDirectory(prefix="esker-") if self.on_disk else None
        self.world = World(None if self.scratch is None else Path(self.scratch.name) / "store")
        self.model = Model()
        self.now = START_MS
        self.history: dict[int, Model] = {}  # the model at each journal position
        self.tokens: dict[int, list[int]] = {}
        self.stage: list[bytes] = []
        self.seen: list[int] = []  # every id ever answered
        # What was told to clients, and may therefore never be taken back; and what waits to be told.
        self.given: dict[tuple[int, int], int] = {}
        self.over: set[int] = set()
        self.untold: list[int] = []
        self.untold_over: list[int] = []

    def _shrink_limits(self) -> None:
        """Small bounds, so that small examples meet them."""
        self.patches.setattr(limits, "TIMERS_PER_TURN", 3)
        self.patches.setattr(limits, "SEQ_RESERVE", 5)
        self.patches.setattr(ready, "_SLACK", 2)
        self.patches.setattr(partition, "_WALK", 2)
        for module in (checkpoint, jobs, idempotency):
            self.patches.setattr(module, "WRITE_KEYS", 4)
        self.patches.setattr(jobs, "_LOOK", 3)

    def teardown(self) -> None:
        self.world.close()
        if self.scratch is not None:
            self.scratch.cleanup()
        self.patches.undo()

    def do(self, command: Command) -> Reply:
        return self.world.do(command, self.now)

    def queue(self, at: int) -> bytes:
        return self.stage[at % len(self.stage)]

    def pick(self, numbers: list[int]) -> list[int]:
        """Ids by number: mostly living jobs, those that were leased before the others; some dead ones."""
        living = sorted(self.model.jobs(), key=lambda job: (-len(self.tokens.get(job.id, [])), job.id))
        ids = [job.id for job in living[:12]] + self.seen[-4:]
        return [ids[number % len(ids)] for number in numbers] if ids else [12345 << 80]

    def with_tokens(self, ids: list[int], kind: str) -> list[int] | None:
        if kind == "none":
            return None
        position = -1 if kind == "live" else 0
        return [self.tokens.get(job_id, [99])[position] for job_id in ids]

    def create(self, name: bytes, config: TopicConfig) -> None:
        reply = self.do(CreateTopic(name, config))
        if name in self.model.topics:
            assert expect(Refusal, reply).code == Code.TOPIC_EXISTS
        else:
            assert expect(TopicView, reply).number == self.model.make(name, config, self.now, lazy=False).number

    def is_durable(self, job: ModelJob) -> bool:
        return self.model.topic_of(job).config.durability == Durability.FSYNC

    def take(self, job: ModelJob, job_id: int, token: int) -> None:
        """A job was delivered under this token."""
        assert token not in self.tokens.get(job_id, [])
        job.token = token
        self.tokens.setdefault(job_id, []).append(token)
        if job.state == SPENT and self.is_durable(job):
            self.untold_over.append(job.id)

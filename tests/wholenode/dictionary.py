"""What clients of the node were answered, as slow plain dictionaries. It knows nothing of events, blocks or stores.

Every change is a step with the journal position that will carry it. A crash that leaves the journal at some position
takes the dictionary back to the steps up to there: what was acknowledged must be among them, what was not may be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from esker.engine.config import Durability, TopicConfig
from tests.properties.logmodel import ModelLog


@dataclass
class Log(ModelLog):
    loose: bool = False  # it had another class before: a crash may take what it likes
    skips: bool = False  # its class is, or was, one that may lose its tail: a crash skips some seqs

    def copy(self) -> Log:
        living = [replace(entry) for entry in self.entries if entry.alive]
        return replace(self, entries=living, gaps=list(self.gaps), keys=dict(self.keys))


@dataclass
class Job:
    payload: bytes
    id: int
    topic: int
    expires_ms: int
    loose: bool  # it may leave by itself: by a cap, by being delivered at most once, or with its class
    over: bool = False  # acked or removed

    def __str__(self) -> str:
        return f"{self.payload[:20]!r} of topic {self.topic} (over: {self.over}, loose: {self.loose})"


@dataclass
class Queue:
    number: int
    config: TopicConfig
    keys: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # when, and which id
    loose: bool = False

    def copy(self) -> Queue:
        return replace(self, keys=dict(self.keys))


@dataclass
class State:
    """`jobs` are found by payload: no two jobs have the same."""

    logs: dict[bytes, Log] = field(default_factory=dict)
    queues: dict[bytes, Queue] = field(default_factory=dict)
    jobs: dict[bytes, Job] = field(default_factory=dict)
    by_id: dict[int, bytes] = field(default_factory=dict)
    loads: dict[bytes, tuple[int, int, bool]] = field(default_factory=dict)  # batch, chunk, done
    ephemeral: set[int] = field(default_factory=set)  # topics that were, at some time

    def copy(self) -> State:
        return State(
            {name: log.copy() for name, log in self.logs.items()},
            {name: queue.copy() for name, queue in self.queues.items()},
            {payload: replace(job) for payload, job in self.jobs.items()},
            dict(self.by_id),
            dict(self.loads),
            set(self.ephemeral),
        )

    def finish(self, job_id: int) -> None:
        payload = self.by_id.get(job_id)
        if payload is not None:
            self.jobs[payload].over = True

    def add(self, job: Job) -> None:
        self.jobs[job.payload] = job
        self.by_id[job.id] = job.payload

    def drop(self, name: bytes) -> None:
        self.logs.pop(name, None)
        queue = self.queues.pop(name, None)
        if queue is not None:
            for job in self.jobs.values():
                if job.topic == queue.number:
                    job.over = job.loose = True  # a dead letter of it may be elsewhere


Step = Callable[[State], None]


class Dictionary:
    def __init__(self) -> None:
        self.now = State()
        self._before = State()  # when the running node came up
        self._steps: list[tuple[int, Step]] = []

    def do(self, position: int, step: Step) -> None:
        step(self.now)
        self._steps.append((position, step))

    def restarted(self, position: int) -> None:
        """The journal ends here now."""
        state = self._before
        for at, step in self._steps:
            if at <= position:
                step(state)
        self.now = state
        for name, queue in state.queues.items():
            if queue.config.durability == Durability.EPHEMERAL:
                self._forget_queue(state, name)
        self.settled()

    def settled(self) -> None:
        """What is here now is where the next crash starts from."""
        self._before = self.now.copy()
        self._steps = []

    def _forget_queue(self, state: State, name: bytes) -> None:
        queue = state.queues[name]
        queue.keys = {}
        for job in state.jobs.values():
            if job.topic == queue.number and not job.over:
                job.over = True

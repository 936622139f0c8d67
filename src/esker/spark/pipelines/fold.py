"""The history of one partition, event by event: what each job is, and whether the next event may happen to it.

The rows of a partition come in the order of the journal. The fold keeps the jobs that are alive and nothing else, so
its memory is bounded by the depth of the queue, not by the length of the history. It asks the rules (rules.py) at every
row, reports what breaks them, and then believes the row: one false event is told once, and not again in all that
follows.

What the history cannot know is never a violation:
* jobs that came before the history begins, or while their queue was ephemeral, are told as notes;
* a delay that ends is no event. The engine ends delays in small steps, so a delayed job counts as ready for certain
  only `grace_ms` after it is due; in between, leasing it and not leasing it are both right;
* where positions are missing, nothing is known of any job, nor of the topic, until later rows say it;
* a restart ends leases that were not promised to survive it (`NodeStarted`); a history without such rows gives leases
  over live ones the benefit of the doubt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from esker.spark.pipelines import leaving
from esker.spark.pipelines.codes import AnyRow, Balance, Bound, Code, Job, Reason, Row, State, Times
from esker.spark.pipelines.copies import Copies
from esker.spark.pipelines.facts import NO_CHANGE, Change, ChangeKind, Config
from esker.spark.pipelines.ranking import better_than
from esker.spark.pipelines.rules import Findings, Violation

SEQ_BITS: Final = 46
_SEQ_MASK: Final = (1 << SEQ_BITS) - 1
_SLACK: Final = 1024  # garbage in the ready heap beyond as much as there is truth
_CEILINGS: Final = 64  # of one life of the node: a crash goes to the last one
GRACE_MS: Final = 1000

_READY, _DELAYED, _LEASED, _WITHDRAWN, _SPENT = (int(state) for state in State)


class PartitionFold:
    """`story`: what changed for the topic (facts.py). Rows of a snapshot come as `LIVE` at its position.

    `best_of`: a lease may take any of so many best ready jobs. `times` None: nobody asks. `graves`: the dead-letter
    topics to count letters of, and since which position; `name`: of this topic, which may be one.
    """

    def __init__(
        self,
        topic: int,
        partition: int,
        story: Sequence[Change],
        findings: Findings,
        *,
        starts_told: bool = True,
        grace_ms: int = GRACE_MS,
        best_of: int = 1,
        times: Times | None = None,
        graves: Mapping[str, int] | None = None,
        name: str | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.jobs: dict[int, Job] = {}
        self.balance = Balance()
        self.last_ms = 0  # of the last row
        self._findings = findings
        self._story = story
        self._told, self._next = 0, story[0] if story else NO_CHANGE
        self._starts_told = starts_told
        self._grace_ms = grace_ms
        self._best_of = best_of
        self._times = times
        self._graves = graves or {}
        self._grave = name if name is not None and name in self._graves else None
        self._config: Config | None = None
        self._sign: int | None = None  # None: the mode is not known, so no order is judged
        self._is_older = True  # than the history
        self._deleted = self._complete = False  # complete: every living job is known
        self._spent = 0  # of the jobs
        self._blind = "older"  # why jobs below `_known_from` may be unknown
        self._known_from: int | None = None  # jobs from this seq on came within the history; None: none yet
        self._next_seq: int | None = None  # None: any seq may come next
        self._ceilings: set[int] = set()  # reserved in this life of the node
        self._jumps: set[int] = set()  # where the next seq may lie after a crash
        self._may_jump_anywhere = False  # a ceiling from before the history may have been reached
        self._copies = Copies()
        self._heap: list[int] = []  # keys of ready jobs, and garbage
        self._ready = 0
        self._delayed: list[tuple[int, int]] = []  # (due, seq) of delayed jobs, and garbage
        self._certain_ms = 0  # before this, what was due while the node was down may still be on its way

    def run(self, rows: Iterable[AnyRow]) -> None:
        """Takes the next rows of the partition."""
        moves, row = _MOVES, None
        for row in rows:
            if row[0] >= self._next[0]:
                self._catch_up(row[0], row[1])
            moves[row[3]](self, row)
        if row is not None:
            self.last_ms = max(self.last_ms, row[2])  # a row of a snapshot has no time

    def finish(self) -> None:
        """After the last row of the partition."""
        self._catch_up(NO_CHANGE.position - 1, 0)
        self.balance.alive = len(self.jobs)

    # -- what happens to the topic

    def _catch_up(self, position: int, ordinal: int) -> None:
        while (self._next.position, self._next.ordinal) < (position, ordinal):
            change = self._next
            self._told += 1
            self._next = self._story[self._told] if self._told < len(self._story) else NO_CHANGE
            match change.kind:
                case ChangeKind.CREATED:
                    self._is_older = self._may_jump_anywhere = False
                    self._complete = True
                    self._known_from = self._next_seq = 1
                    self._configure(change.config)
                case ChangeKind.CONFIGURED:
                    self._configure(change.config)
                case ChangeKind.DELETED:
                    self._forget(change.time_ms, below=None)
                    self._deleted = True
                case ChangeKind.ROUTER:
                    self._copies.begin(change.router, change.cursor)
                case ChangeKind.STARTED:
                    self._restart(change.time_ms)
                case ChangeKind.SNAPSHOT:
                    self._compare(change)
                case ChangeKind.HOLE:
                    self._is_older = self._may_jump_anywhere = True
                    self._ceilings, self._jumps = set(), set()
                    self._go_blind("older")
                    self._configure(None)

    def _configure(self, config: Config | None) -> None:
        self._config = config
        sign = None if config is None else config.sign
        if sign != self._sign:
            self._sign = sign
            for seq, job in self.jobs.items():
                job.key = self._key(job.priority, seq)
            self._rebuild()
        if config is not None and not config.journaled:
            self._go_blind("untold")

    def _go_blind(self, why: str) -> None:
        """From here on, things happened to these jobs that no event tells."""
        if self._times is not None and self.jobs:
            self._times.lost_sight(len(self.jobs))
        self.jobs.clear()
        self._heap, self._delayed, self._ready, self._spent = [], [], 0, 0
        self._complete = False
        self._blind, self._known_from, self._next_seq = why, None, None

    def _restart(self, now: int) -> None:
        self._may_jump_anywhere = self._may_jump_anywhere or (self._is_older and not self._ceilings)
        self._jumps |= self._ceilings
        self._ceilings = set()
        self._certain_ms = now + self._grace_ms
        config = self._config
        if config is None:
            if any(job.state == _LEASED for job in self.jobs.values()):
                self._go_blind("older")  # whether their leases survived depends on what is not known
        elif not config.leases_survive:
            for seq, job in self.jobs.items():
                if job.state == _LEASED:
                    job.token = None
                    self._to_ready(seq, job, now)

    # -- jobs come

    def _enqueued(self, row: AnyRow) -> None:
        seq, now, due_ms = row[4], row[2], row[7]
        if seq == self._next_seq:
            self._next_seq = seq + 1
        else:
            self._assign(row, seq, seq)
        priority = row[5]
        sign = self._sign
        key = seq if not priority or not sign else (priority * sign << SEQ_BITS) + seq
        self.balance.came += 1
        if self._grave is not None:
            self._findings.letters[self._grave, row[0]] -= 1
        if due_ms > now:
            self.jobs[seq] = Job(priority, key, _DELAYED, due_ms, now, due_ms, row[8], row[11])
            self._delay(due_ms, seq)
        else:
            self.jobs[seq] = Job(priority, key, _READY, 0, now, now, row[8], row[11])
            self._ready += 1
            heappush(self._heap, key)
        if self._times is not None:
            self._times.came(now)

    def _replayed(self, row: AnyRow) -> None:
        seq, now, priority = row[4], row[2], row[5]
        job = self.jobs.get(seq)
        if job is not None:
            self._break("known_jobs", row, f"no job of seq {seq}, which comes back", f"one that is {_word(job)}")
            self._leave(seq, job)
        self.balance.replayed += 1
        self.jobs[seq] = Job(priority, self._key(priority, seq), _READY, 0, now, now, row[8], row[11])
        self._push(self.jobs[seq])
        if self._times is not None:
            self._times.came(now)

    # -- jobs are leased

    def _leased(self, row: AnyRow) -> None:
        seq, now = row[4], row[2]
        job = self.jobs.get(seq)
        if job is None:
            self._unknown(row)
            return
        if self._delayed and self._delayed[0][0] <= now - self._grace_ms and now >= self._certain_ms:
            self._promote(now - self._grace_ms)
        state, rank = job.state, 0
        if state == _READY:
            if self._sign is not None and self._best() != job.key:
                rank = self._rank(row, job)
            if self._heap[0] == job.key:
                self._ready -= 1
                heappop(self._heap)
            else:
                self._unready()
        elif state == _DELAYED and job.due_ms <= now:
            best = self._best()
            if self._sign is not None and best is not None and best < job.key:
                rank = self._rank(row, job)
        else:
            self._break_lease(row, job)
        self._count_attempt(row, job)
        job.attempts = row[5]
        job.token = None if state == _LEASED else row[6]  # of two leases, the ack of either is right
        job.due_ms = row[7]
        job.state = _LEASED if row[7] else _SPENT
        if job.state != state and _SPENT in (job.state, state):
            self._spent += 1 if job.state == _SPENT else -1
        job.at, job.leased_ms, job.holder = row[0], now, row[10]
        if self._times is not None:
            self._times.leased(now, job, rank)

    def _rank(self, row: AnyRow, job: Job) -> int:
        """How many better jobs are ready. The best one is at the top of the heap."""
        rank = better_than(job.key, self._heap, self._is_true)
        if rank >= self._best_of:
            best = self._heap[0] & _SEQ_MASK
            other = self.jobs[best]
            self._break(
                "pop_order", row, f"seq {best} of priority {other.priority}, ready since {other.ready_ms}",
                f"seq {row[4]} of priority {job.priority} was leased",
            )  # fmt: skip
        return rank

    def _break_lease(self, row: AnyRow, job: Job) -> None:
        """A lease of a job that is not ready."""
        if job.state == _LEASED:
            if not self._starts_told and (self._config is None or not self._config.leases_survive):
                self._findings.notes["unmarked_restarts"] += 1
                return
            self._break(
                "one_live_lease", row, f"no other lease while {job.token} of position {job.at} is live",
                f"lease {row[6]}",
            )  # fmt: skip
        elif job.state == _SPENT:
            self._break("one_live_lease", row, f"no lease after the only one, at position {job.at}", f"lease {row[6]}")
        elif job.state == _DELAYED:
            self._break("pop_order", row, f"no lease before {job.due_ms}, when its delay ends", f"a lease at {row[2]}")
        else:
            self._break("legal_moves", row, "a lease of a job that is ready", f"one that is {_word(job)}")

    def _count_attempt(self, row: AnyRow, job: Job) -> None:
        attempts = row[5]
        if attempts != job.attempts + 1:
            self._break("attempts_limit", row, f"attempt {job.attempts + 1}", f"attempt {attempts}")
            return
        config = self._config
        most = 0 if config is None else config.most_deliveries(job.most)
        if 0 < most < attempts:
            if row[9] == Reason.EXCUSED:
                self._findings.notes["excused"] += 1
            else:
                self._break("attempts_limit", row, f"a dead letter after {most} deliveries", f"attempt {attempts}")

    def _extended(self, row: AnyRow) -> None:
        job = self.jobs.get(row[4])
        if job is None:
            self._unknown(row)
        elif job.state != _LEASED:
            self._break("legal_moves", row, "a longer lease of a job that is leased", f"one that is {_word(job)}")
        else:
            job.due_ms = row[7]

    # -- jobs come back, or are held back

    def _returned(self, row: AnyRow) -> None:
        seq, now = row[4], row[2]
        job = self.jobs.get(seq)
        if job is None:
            self._unknown(row)
            return
        state = job.state
        if state in (_READY, _SPENT):
            self._break("legal_moves", row, "the return of a job that is away", f"one that is {_word(job)}")
            if state == _READY:
                return
            self._spent -= 1
        elif state == _LEASED:
            if row[9] == Reason.LEASE_EXPIRED and now < job.due_ms:
                self._break("legal_moves", row, f"a lease that lives until {job.due_ms}", f"it expired at {now}")
            if self._times is not None:
                self._times.settled(now, job, acked=False)
        job.token = None
        if row[7] > now:
            job.state, job.due_ms, job.ready_ms = _DELAYED, row[7], row[7]
            self._delay(row[7], seq)
        else:
            self._to_ready(seq, job, now)

    def _withdrawn(self, row: AnyRow) -> None:
        job = self.jobs.get(row[4])
        if job is None:
            self._unknown(row)
            return
        if job.state == _READY:
            self._unready()
        elif job.state == _SPENT:
            self._break("legal_moves", row, "no job that was delivered at most once", "it was held back")
            self._spent -= 1
        job.state, job.due_ms, job.token = _WITHDRAWN, row[7], None

    def _reprioritised(self, row: AnyRow) -> None:
        job = self.jobs.get(row[4])
        if job is None:
            self._unknown(row)
            return
        job.priority = row[5]
        key = self._key(row[5], row[4])
        if key != job.key:
            job.key = key
            if job.state == _READY:
                self._unready()
                self._push(job)

    # -- jobs leave

    def _acked(self, row: AnyRow) -> None:
        seq, token = row[4], row[6]
        job = self.jobs.pop(seq, None)
        if job is None:
            self._unknown(row)
            return
        state = job.state
        if not token:
            self._findings.notes["unfenced_acks"] += 1
        elif state != _LEASED or (job.token is not None and job.token != token):
            live = f"lease {job.token}" if state == _LEASED else f"no lease: it is {_word(job)}"
            self._break("ack_without_lease", row, f"an ack under the live lease; there is {live}", f"under {token}")
        elif row[2] > job.due_ms:
            self._break("ack_without_lease", row, f"an ack until {job.due_ms}, when the lease ends", f"at {row[2]}")
        early = leaving.ack_problem(job, row[2])
        if early is not None:
            self._break("ack_before_lease", row, *early)
        if state == _READY:
            self._unready()
        elif state == _SPENT:
            self._spent -= 1
        self.balance.acked += 1
        if self._times is not None:
            self._times.settled(row[2], job, acked=True)

    def _removed(self, row: AnyRow) -> None:
        job = self.jobs.get(row[4])
        if job is None:
            self._unknown(row)
            return
        balance, config, problem, rule = self.balance, self._config, None, ""
        match row[9]:
            case Reason.EXPIRED:
                rule, problem = "early_expiry", leaving.expiry_problem(job, row[2])
                balance.expired += 1
            case Reason.DEAD_LETTERED:
                rule, problem = "dead_letter_reason", leaving.dead_letter_problem(job, config)
                balance.dead_lettered += 1
                self._count_letter(self._findings.letters, row[0])
            case Reason.EVICTED:
                rule, problem = "eviction_needs_cap", leaving.eviction_problem(job, config, self._counted())
                balance.evicted += 1
            case _:
                balance.deleted += 1
                if row[9] == Reason.DELETED and leaving.is_used_up(job, config):
                    self._findings.notes["deleted_at_limit"] += 1
                    self._count_letter(self._findings.deleted, row[0])
        if problem is not None:
            self._break(rule, row, *problem)
        self._leave(row[4], job)
        if self._times is not None:
            self._times.left(row[2], row[9], 1)

    def _counted(self) -> int | None:
        """How many jobs a cap counts; None: not all are known."""
        return len(self.jobs) - self._spent if self._complete else None

    def _count_letter(self, letters: Counter[tuple[str, int]], position: int) -> None:
        grave = None if self._config is None else self._config.dead_letter
        if grave is not None and self._graves.get(grave, NO_CHANGE.position) <= position:
            letters[grave, position] += 1

    def _purged(self, row: AnyRow) -> None:
        below = row[4]
        gone = sum(seq < below for seq in self.jobs)
        living = len(self.jobs) if self._complete else None
        problem = leaving.purge_problem(below, self._may_jump(below), self._next_seq, gone, living)
        if problem is not None:
            self._break("real_purge", row, *problem)
        self._forget(row[2], below=below)

    def _forget(self, time_ms: int, below: int | None) -> None:
        gone = [seq for seq in self.jobs if below is None or seq < below]
        for seq in gone:
            self._leave(seq, self.jobs[seq])
        self.balance.purged += len(gone)
        if self._times is not None and gone:
            self._times.left(time_ms, 0, len(gone))

    def _leave(self, seq: int, job: Job) -> None:
        del self.jobs[seq]
        if job.state == _READY:
            self._unready()
        elif job.state == _SPENT:
            self._spent -= 1

    def _unknown(self, row: AnyRow) -> None:
        """An event of a job that is not there."""
        seq = row[4]
        if self._known_from is None or seq < self._known_from:
            self._findings.notes[self._blind] += 1
            return
        came = self._next_seq is None or seq < self._next_seq
        self._break(
            "known_jobs", row, f"a job of seq {seq} in a topic that exists" if self._deleted else f"a job of seq {seq}",
            "it is gone already" if came else "it never came",
        )  # fmt: skip

    # -- seqs

    def _reserved(self, row: AnyRow) -> None:
        self._ceilings.add(row[4])
        if len(self._ceilings) > _CEILINGS:
            self._ceilings.remove(min(self._ceilings))

    def _appended(self, row: AnyRow) -> None:
        seq = row[4]
        if self._grave is not None:
            self._findings.letters[self._grave, row[0]] -= 1
        if seq == self._next_seq:
            self._next_seq = seq + 1
        else:
            self._assign(row, seq, seq)

    def _lost(self, row: AnyRow) -> None:
        self._assign(row, row[4], max(row[4], row[8]))

    def _assign(self, row: AnyRow, first: int, last: int) -> None:
        wanted = self._next_seq
        if wanted is None:
            if self._known_from is None:
                self._known_from = first
        elif first != wanted and not (first > wanted and self._may_jump(first)):
            self._break("contiguous_seqs", row, f"seq {wanted}", f"seq {first}")
        self._next_seq = last + 1 if wanted is None else max(wanted, last + 1)
        if self._jumps or self._ceilings:
            self._jumps = {seq for seq in self._jumps if seq > first}
            self._ceilings = {seq for seq in self._ceilings if seq > first}
        self._may_jump_anywhere = False

    def _may_jump(self, seq: int) -> bool:
        if self._may_jump_anywhere or seq in self._jumps:
            return True
        return not self._starts_told and (self._is_older or seq in self._ceilings)

    def _forwarded(self, row: AnyRow) -> None:
        """A copy. Where it is not derived, its record or job has a row of its own, before this one or behind it."""
        seq, router, source = row[4], row[5], row[8]
        if not seq:
            return  # the router only went on
        if row[9] != Reason.NOT_DERIVED:
            self._appended(row)
        problem = self._copies.add(router, source, seq)
        if problem is not None:
            self._break("router_exactly_once", row, *problem)

    # -- what the broker says

    def _live(self, row: AnyRow) -> None:
        job = self.jobs.get(row[4])
        if job is not None:
            job.seen = True
        elif self._known_from is None or row[4] < self._known_from:
            self._findings.notes[self._blind] += 1
        else:
            self._break("conservation", row, f"no living job of seq {row[4]}, by the history", "it is in the queue")

    def _head(self, row: AnyRow) -> None:
        """The broker's next seq. After a restart it may lie at a ceiling, of which no row says anything yet."""
        live, told = row[4], self._next_seq
        if told is None or live == told or (live > told and self._may_jump(live)):
            return
        if row[5] == Bound.LEAST and live < told:
            self._break(
                "live_heads", row, f"the next seq is {told} or later, by the history", f"the broker says {live}"
            )
        elif row[5] == Bound.MOST and live > told:
            self._break("live_heads", row, f"the next seq is {told}, by the history", f"the broker says {live}")

    def _compare(self, change: Change) -> None:
        for seq, job in self.jobs.items():
            if not job.seen and job.state != _SPENT:
                row = Row(change.position, change.ordinal, change.time_ms, Code.LIVE, seq)
                self._break("conservation", row, f"a living job of seq {seq} ({_word(job)})", "it is not in the queue")

    # -- order

    def _key(self, priority: int, seq: int) -> int:
        return (priority * (self._sign or 0) << SEQ_BITS) + seq

    def _push(self, job: Job) -> None:
        self._ready += 1
        heappush(self._heap, job.key)

    def _unready(self) -> None:
        """A ready job goes from the middle, and leaves its key behind: garbage, which stays bounded."""
        self._ready -= 1
        if len(self._heap) > 2 * self._ready + _SLACK:
            self._rebuild()

    def _to_ready(self, seq: int, job: Job, since_ms: int) -> None:
        job.state, job.due_ms, job.ready_ms = _READY, 0, since_ms
        self._push(job)

    def _rebuild(self) -> None:
        self._heap = [job.key for job in self.jobs.values() if job.state == _READY]
        heapify(self._heap)

    def _delay(self, due_ms: int, seq: int) -> None:
        heappush(self._delayed, (due_ms, seq))
        if len(self._delayed) > 2 * len(self.jobs) + _SLACK:
            self._delayed = [(job.due_ms, seq) for seq, job in self.jobs.items() if job.state == _DELAYED]
            heapify(self._delayed)

    def _promote(self, due_ms: int) -> None:
        delayed = self._delayed
        while delayed and delayed[0][0] <= due_ms:
            due, seq = heappop(delayed)
            job = self.jobs.get(seq)
            if job is not None and job.state == _DELAYED and job.due_ms == due:
                self._to_ready(seq, job, due)

    def _is_true(self, key: int) -> bool:
        job = self.jobs.get(key & _SEQ_MASK)
        return job is not None and job.state == _READY and job.key == key

    def _best(self) -> int | None:
        heap = self._heap
        while heap:
            key = heap[0]
            job = self.jobs.get(key & _SEQ_MASK)
            if job is not None and job.state == _READY and job.key == key:
                return key
            heappop(heap)
        return None

    def _break(self, rule: str, row: AnyRow, expected: str, found: str) -> None:
        self._findings.add(Violation(rule, self.topic, self.partition, row[0], row[1], row[2], row[4], expected, found))


def _word(job: Job) -> str:
    return State(job.state).name.lower()


_MOVES: Final[dict[int, Callable[[PartitionFold, AnyRow], None]]] = {
    Code.ENQUEUED: PartitionFold._enqueued,
    Code.LEASED: PartitionFold._leased,
    Code.ACKED: PartitionFold._acked,
    Code.RETURNED: PartitionFold._returned,
    Code.EXTENDED: PartitionFold._extended,
    Code.WITHDRAWN: PartitionFold._withdrawn,
    Code.REPRIORITISED: PartitionFold._reprioritised,
    Code.REMOVED: PartitionFold._removed,
    Code.REPLAYED: PartitionFold._replayed,
    Code.PURGED: PartitionFold._purged,
    Code.RESERVED: PartitionFold._reserved,
    Code.APPENDED: PartitionFold._appended,
    Code.FORWARDED: PartitionFold._forwarded,
    Code.LOST: PartitionFold._lost,
    Code.LIVE: PartitionFold._live,
    Code.HEAD: PartitionFold._head,
}

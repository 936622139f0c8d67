"""Scans of queues and jobs: `*2 [cursor, items]`, until the cursor is 0 again.

Filters are applied to each page of the engine's scan, so a page may be short or empty while the cursor goes on; as with
Redis's SCAN only cursor 0 is the end. BUSYLOOP answers everything at once, up to a bound of one reply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from esker.engine.commands import ScanJobs
from esker.engine.config import TopicType
from esker.engine.ids import TOPIC_SHIFT
from esker.engine.limits import SCAN_STEP_MAX, SECOND_MS
from esker.engine.replies import Jobs, JobView, TopicView
from esker.fronts.resp import arguments as reading
from esker.fronts.resp import encoding
from esker.fronts.resp.commands.jobs import STATES, description
from esker.fronts.resp.commands.table import command
from esker.fronts.resp.commands.topics import numbers_seen, scan_seen
from esker.fronts.resp.errors import CommandError, expect, syntax_error
from esker.fronts.resp.rules import LISTS

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection

COUNT_DEFAULT: Final = 100
_DISQUE_STATES: Final = frozenset({b"wait-repl", b"active", b"queued", b"acked"})


@dataclass(slots=True)
class _Wanted:
    cursor: int = 0
    count: int = COUNT_DEFAULT
    busyloop: bool = False
    # of queues
    min_len: int = 0
    max_len: int | None = None
    import_rate: int = 0
    max_idle_s: int | None = None
    # of jobs
    queue: bytes | None = None
    states: set[bytes] = field(default_factory=set)
    whole: bool = False

    @property
    def step(self) -> int:
        """BUSYLOOP asks for as much as one step of the engine may give: where there is more, it gets a cursor."""
        return SCAN_STEP_MAX if self.busyloop else min(self.count, SCAN_STEP_MAX)


@command(b"SCANQUEUES", -1, "readonly", rule=LISTS)
@command(b"QSCAN", -1, "readonly", rule=LISTS)
def qscan(client: Connection, arguments: list[bytes]) -> bytes:
    wanted = _options(arguments, _queue_option)
    now = client.broker.now_ms()
    cursor, topics = scan_seen(client, wanted.cursor, wanted.step)
    return _page(cursor, [encoding.bulk(topic.name) for topic in topics if _queue_fits(topic, wanted, now)])


def _queue_option(wanted: _Wanted, name: bytes, options: reading.Options) -> bool:
    most = reading.INT64_MAX
    message = f"ERR {name.decode('latin-1')} must be a non negative number"
    if name == b"MINLEN":
        wanted.min_len = options.integer(0, most, message)
    elif name == b"MAXLEN":
        wanted.max_len = options.integer(0, most, message)
    elif name == b"IMPORTRATE":
        wanted.import_rate = options.integer(0, most, message)
    elif name == b"MAXIDLE":
        wanted.max_idle_s = options.integer(0, most, message)
    else:
        return False
    return True


def _queue_fits(topic: TopicView, wanted: _Wanted, now: int) -> bool:
    if topic.config.type != TopicType.QUEUE:  # a client goes on with GETJOB, which a log refuses
        return False
    if topic.ready < wanted.min_len or wanted.import_rate > 0:  # a cluster of one imports nothing
        return False
    if wanted.max_len is not None and topic.ready > wanted.max_len:
        return False
    idle_ms = now - (topic.active_ms or topic.created_ms)
    return wanted.max_idle_s is None or idle_ms <= wanted.max_idle_s * SECOND_MS


@command(b"SCANJOBS", -1, "readonly", rule=LISTS)
@command(b"JSCAN", -1, "readonly", rule=LISTS)
def jscan(client: Connection, arguments: list[bytes]) -> bytes:
    wanted = _options(arguments, _job_option)
    if wanted.queue is not None:
        client.reach(wanted.queue)
    cursor, jobs = _jobs_seen(client, wanted.cursor, wanted)
    return _page(
        cursor, [_job(client, job, wanted) for job in jobs if not wanted.states or STATES[job.state] in wanted.states]
    )


def _jobs_seen(client: Connection, cursor: int, wanted: _Wanted) -> tuple[int, list[JobView]]:
    """A page of the jobs that this client may see, and a cursor, which tells of these alone."""
    handle = client.broker.handle
    if wanted.queue is not None or not client.key.prefixes:
        page = expect(Jobs, handle(ScanJobs(cursor, wanted.step, wanted.queue)))
        return page.cursor, list(page.jobs)
    found: list[JobView] = []
    for number, name in numbers_seen(client, (cursor >> TOPIC_SHIFT) - 1):
        if len(found) >= wanted.step:
            return number << TOPIC_SHIFT, found
        page = expect(Jobs, handle(ScanJobs(cursor, wanted.step - len(found), name)))
        found += page.jobs
        if page.cursor:
            return page.cursor, found
    return 0, found


def _job_option(wanted: _Wanted, name: bytes, options: reading.Options) -> bool:
    if name == b"QUEUE":
        wanted.queue = options.value()
    elif name == b"STATE":
        state = options.value().lower()
        if state not in _DISQUE_STATES:
            raise CommandError("ERR Invalid job state name")
        wanted.states.add(state)
    elif name == b"REPLY":
        kind = options.value().upper()
        if kind not in (b"ALL", b"ID"):
            raise CommandError("ERR Invalid REPLY type, use all or id")
        wanted.whole = kind == b"ALL"
    else:
        return False
    return True


def _job(client: Connection, job: JobView, wanted: _Wanted) -> bytes:
    if wanted.whole:
        return description(client, job)
    ttl_ms = job.expires_ms - job.created_ms if job.expires_ms else 0
    return encoding.simple(client.ids.write(job.id, ttl_ms, job.retry_ms))


def _options(arguments: list[bytes], special: Callable[[_Wanted, bytes, reading.Options], bool]) -> _Wanted:
    """Options in any order; the one argument that is none is the cursor."""
    wanted = _Wanted()
    options = reading.Options(arguments, 1)
    cursor_seen = False
    while (name := options.next()) is not None:
        if name == b"COUNT":
            wanted.count = options.integer(1, reading.INT64_MAX, "ERR COUNT must be a number greater than zero")
        elif name == b"BUSYLOOP":
            wanted.busyloop = True
        elif special(wanted, name, options):
            continue
        elif cursor_seen:
            raise syntax_error()
        else:
            wanted.cursor = _cursor(name)
            cursor_seen = True
    return wanted


def _cursor(value: bytes) -> int:
    if not value.isdigit() or len(value) > 39:  # the engine's cursors are up to 128 bits wide
        raise CommandError("ERR invalid cursor")
    return int(value)


def _page(cursor: int, items: list[bytes]) -> bytes:
    return b"*2\r\n" + encoding.bulk(b"%d" % cursor) + encoding.array(items)

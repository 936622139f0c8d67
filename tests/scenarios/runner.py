"""The verbs of scenarios: each turns its words into one command of the engine, and shows the reply.

README.md has the list for people. A verb that a front offers under another name (claims, DELJOB) has the plain word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from esker.engine import commands
from esker.engine.config import (
    Backoff,
    Discard,
    Durability,
    Guarantee,
    Mode,
    Pause,
    RouterOptions,
    TopicConfig,
    TopicType,
)
from esker.engine.ids import SLOT_MASK
from esker.engine.replies import CohortLeased, Deleted, Delivery, Leased, Reply, TopicStatus
from tests.scenarios import script
from tests.scenarios.script import ScenarioError, Words, unquoted
from tests.scenarios.shown import Shown, milliseconds, moment
from tests.scenarios.stage import Stage


def play(text: str, *, checkpoint_often: bool = False) -> str:
    """The scenario with the output it has now. `checkpoint_often`: a checkpoint after every command, which changes
    nothing that anybody can see, as long as no power is lost."""
    return script.run(text, Runner(checkpoint_often).execute)


class Runner:
    """One scenario under way."""

    def __init__(self, checkpoint_often: bool = False) -> None:
        self.stage = Stage()
        self.shown = Shown()
        self.leases: dict[str, list[Delivery]] = {}  # the last of each worker
        self.names: dict[str, int] = {}  # ids of jobs that the scenario named
        self._checkpoint_often = checkpoint_often
        self._learned = 0  # batches that names were learned from

    def execute(self, line: str) -> list[str]:
        words = Words.of(line)
        verb = VERBS.get(words.verb)
        if verb is None:
            raise ScenarioError(f"no verb {words.verb!r}; there are {', '.join(sorted(VERBS))}")
        output = verb(self, words)
        words.check_used()
        if self._checkpoint_often:
            self.stage.checkpoint()
        return output

    def do(self, words: Words, command: commands.Command) -> Reply:
        words.check_used()
        reply = self.stage.do(words.verb, command)
        for batch in self.stage.batches[self._learned :]:
            self.shown.learn(batch.events)
        self._learned = len(self.stage.batches)
        return reply

    def show(self, words: Words, command: commands.Command) -> list[str]:
        return self.shown.reply(self.do(words, command))

    def look(self) -> list[str]:
        """The events since the last look."""
        batches, self.stage.batches, self._learned = self.stage.batches, [], 0
        return [line for batch in batches for line in self.shown.batch(batch)] or ["nothing"]

    def id_of(self, label: str) -> int:
        job_id = self.names.get(label) or self.shown.ids.get(label)
        if job_id is None:
            raise ScenarioError(f"no job {label!r} was shown yet")
        return job_id

    def named(self, words: Words) -> tuple[list[int], list[int | None] | None]:
        """The jobs that a verb names, and the tokens if it names a worker: `w1`, `w1 q#2`, or `q#1 q#2`."""
        held = self.leases.get(words.first())
        if held is None:
            return [self.id_of(label) for label in words.plain], None
        wanted = {self.id_of(label) for label in words.plain[1:]} or {each.id for each in held}
        mine = [each for each in held if each.id in wanted]
        if len(mine) != len(wanted):
            raise ScenarioError(f"the last lease of {words.first()} has not all of these")
        return [each.id for each in mine], [each.token for each in mine]


# -- words to values


def _time(words: Words, name: str) -> int | None:
    text = words.take(name)
    return None if text is None else milliseconds(text)


def _number(words: Words, name: str, default: int) -> int:
    text = words.take(name)
    return default if text is None else int(text)


def _bytes(words: Words, name: str) -> bytes:
    return (words.take(name) or "").encode()


def _flag(text: str) -> bool:
    return {"yes": True, "no": False}[text]


def _prefix(tag: str | None) -> tuple[bytes | None, bool]:
    """`t*` is every tag that starts with t."""
    if tag is None:
        return None, False
    return tag.removesuffix("*").encode(), tag.endswith("*")


_CONFIG: dict[str, tuple[str, Callable[[str], object]]] = {
    "type": ("type", TopicType),
    "partitions": ("partitions", int),
    "mode": ("mode", Mode),
    "class": ("durability", Durability),
    "ttl": ("ttl_ms", milliseconds),
    "max_payload": ("max_payload_bytes", int),
    "max_in_flight": ("max_in_flight", int),
    "lease": ("lease_ms", milliseconds),
    "max_lease": ("max_lease_ms", milliseconds),
    "leases_durable": ("leases_durable", _flag),
    "max_deliveries": ("max_deliveries", int),
    "dead_letter": ("dead_letter", str.encode),
    "window": ("idempotency_window_ms", milliseconds),
    "cap": ("cap_records", int),
    "cap_bytes": ("cap_bytes", int),
    "discard": ("discard", Discard),
    "priority": ("priority", int),
    "dedupe_node": ("dedupe_node", _flag),
}


def _config(words: Words, config: TopicConfig) -> TopicConfig:
    """`config` with the options of the command. A backoff has no jitter here, so that its times can be shown."""
    changes = {
        field: convert(text) for name, (field, convert) in _CONFIG.items() if (text := words.take(name)) is not None
    }
    base_ms = _time(words, "backoff")
    factor, cap_ms = float(words.take("factor") or 2), _time(words, "longest") or Backoff().cap_ms
    if base_ms is not None:
        changes["backoff"] = Backoff(base_ms=base_ms, factor=factor, cap_ms=cap_ms, jitter=0)
    return msgspec.structs.replace(config, **changes)


# -- topics


def _create(runner: Runner, words: Words) -> list[str]:
    reply = runner.do(words, commands.CreateTopic(words.first().encode(), _config(words, TopicConfig())))
    return ["ok"] if not isinstance(reply, Exception) else runner.shown.reply(reply)


def _configure(runner: Runner, words: Words) -> list[str]:
    name = words.first().encode()
    known = runner.stage.do(words.verb, commands.TopicState(name, touch=False))
    config = _config(words, known.config if isinstance(known, TopicStatus) else TopicConfig())
    reply = runner.do(words, commands.ConfigureTopic(name, config))
    return ["ok"] if not isinstance(reply, Exception) else runner.shown.reply(reply)


def _drop(runner: Runner, words: Words) -> list[str]:
    if_empty = _flag(words.take("if_empty") or "no")
    return runner.show(words, commands.DropTopic(words.first().encode(), if_empty))


def _status(runner: Runner, words: Words) -> list[str]:
    return runner.show(words, commands.TopicState(words.first().encode(), touch=False))


def _topics(runner: Runner, words: Words) -> list[str]:
    return runner.show(words, commands.ListTopics())


# -- jobs


def _enqueue(runner: Runner, words: Words) -> list[str]:
    """All payloads in one command, with the same options."""
    delay_ms, most = _time(words, "delay") or 0, words.take("max_deliveries")
    producer, _, numbers = (words.take("producer") or "").partition(":")
    epoch, _, sequence = numbers.partition(":")
    details = commands.Details(
        delay_ms=delay_ms,
        max_deliveries=None if most is None else int(most),
        tag=_bytes(words, "tag"),
        node=_bytes(words, "node"),
        producer=producer.encode(),
        epoch=int(epoch or 0),
        sequence=int(sequence or 0),
        key=_bytes(words, "key"),
    )
    priority, retry_ms, ttl_ms = _number(words, "priority", 0), _time(words, "retry"), _time(words, "ttl")
    place, name = words.take("partition_key"), words.take("as")
    kept = None if details == commands.NO_DETAILS else details
    partition_key = None if place is None else place.encode()
    jobs = [
        commands.NewJob(unquoted(payload).encode(), priority, retry_ms, ttl_ms, kept, partition_key)
        for payload in words.plain[1:]
    ]
    max_len, create = _number(words, "max_len", 0), _flag(words.take("create") or "yes")
    output = runner.show(words, commands.Enqueue(words.first().encode(), jobs, max_len, create=create))
    if name is not None:
        runner.names[name] = runner.shown.ids[output[0].split()[0]]
    return output


def _lease(runner: Runner, words: Words) -> list[str]:
    worker = words.take("as") or ""
    command = commands.Lease(
        words.first().encode(), _number(words, "count", 1), _time(words, "for"), worker.encode(),
        _number(words, "taker", 0),
    )  # fmt: skip
    reply = runner.do(words, command)
    if worker and isinstance(reply, Leased):
        runner.leases[worker] = list(reply.deliveries)
    return runner.shown.reply(reply)


def _share(runner: Runner, words: Words) -> list[str]:
    """`share q w1=3 w2=3`: claims that came together."""
    workers = list(words.options)
    topic = words.first().encode()
    claims = [commands.Lease(topic, _number(words, name, 0), None, name.encode()) for name in workers]
    reply = runner.do(words, commands.LeaseCohort(topic, claims))
    if isinstance(reply, CohortLeased):
        for name, share in zip(workers, reply.shares, strict=True):
            runner.leases[name] = list(share.deliveries)
        return [f"{name}: {line}" for name, line in zip(workers, runner.shown.reply(reply), strict=True)]
    return runner.shown.reply(reply)


def _takers(words: Words) -> Sequence[int] | None:
    text = words.take("taker")
    return None if text is None else [int(text)]


def _held(runner: Runner, words: Words, ids: Sequence[int]) -> tuple[bytes, list[int]]:
    """The topic and the slots of jobs that a worker names by place and itself by a name."""
    return words.first().partition("#")[0].partition("/")[0].encode(), [each & SLOT_MASK for each in ids]


def _ack(runner: Runner, words: Words) -> list[str]:
    ids, tokens = runner.named(words)
    holder = words.take("holder")
    if holder is not None:
        topic, slots = _held(runner, words, ids)
        return runner.show(words, commands.AckHeld(topic, slots, holder.encode()))
    return runner.show(words, commands.Ack(ids, tokens))


def _nack(runner: Runner, words: Words) -> list[str]:
    ids, tokens = runner.named(words)
    holder, delay_ms, takers = words.take("holder"), _time(words, "delay"), _takers(words)
    if holder is not None:
        topic, slots = _held(runner, words, ids)
        return runner.show(words, commands.NackHeld(topic, slots, holder.encode(), delay_ms=delay_ms or 0))
    return runner.show(words, commands.Nack(ids, tokens, delay_ms, takers))


def _extend(runner: Runner, words: Words) -> list[str]:
    ids, tokens = runner.named(words)
    lease_ms, takers = _time(words, "for"), _takers(words)
    if lease_ms is None:
        raise ScenarioError("extend needs for=30s")
    return runner.show(words, commands.Extend(ids, lease_ms, tokens, takers))


def _working(runner: Runner, words: Words) -> list[str]:
    ids, tokens = runner.named(words)
    return runner.show(words, commands.Working(ids[0], tokens[0] if tokens else None, _takers(words)))


def _release(runner: Runner, words: Words) -> list[str]:
    return runner.show(words, commands.Release(words.first().encode()))


def _requeue(runner: Runner, words: Words) -> list[str]:
    return runner.show(words, commands.Requeue(runner.named(words)[0]))


def _withdraw(runner: Runner, words: Words) -> list[str]:
    return runner.show(words, commands.Withdraw(runner.named(words)[0]))


def _reprioritise(runner: Runner, words: Words) -> list[str]:
    priority = _number(words, "priority", 0)
    return runner.show(words, commands.Reprioritise(runner.named(words)[0], priority))


def _show(runner: Runner, words: Words) -> list[str]:
    return runner.show(words, commands.Show(runner.id_of(words.first())))


def _peek(runner: Runner, words: Words) -> list[str]:
    count, newest = _number(words, "count", 1), _flag(words.take("newest") or "no")
    return runner.show(words, commands.Peek(words.first().encode(), count, newest))


def _stats(runner: Runner, words: Words) -> list[str]:
    return runner.show(words, commands.Stats(words.first().encode()))


def _pause(runner: Runner, words: Words) -> list[str]:
    pause = Pause[words.plain[1].upper()] if len(words.plain) > 1 else None
    return runner.show(words, commands.PauseTopic(words.first().encode(), pause))


def _purge(runner: Runner, words: Words) -> list[str]:
    return runner.show(words, commands.Purge(words.first().encode()))


def _replay(runner: Runner, words: Words) -> list[str]:
    ids = [runner.id_of(label) for label in words.plain[1:]] or None
    count = _number(words, "count", 1)
    return runner.show(words, commands.ReplayDeadLetters(words.first().encode(), ids, count))


# -- records


def _append(runner: Runner, words: Words) -> list[str]:
    tag, node, meta, key = (_bytes(words, name) for name in ("tag", "node", "meta", "key"))
    create = _flag(words.take("create") or "yes")
    records = [commands.NewRecord(data.encode(), tag, node, meta) for data in words.plain[1:]]
    return runner.show(words, commands.Append(words.first().encode(), records, key, create=create))


def _read(runner: Runner, words: Words) -> list[str]:
    after, limit = _number(words, "after", 0), _number(words, "limit", 256)
    nodes = frozenset(name.encode() for name in (words.take("not_from") or "").split(",") if name)
    return runner.show(words, commands.Read(words.first().encode(), after, limit, nodes=nodes))


def _delete(runner: Runner, words: Words) -> list[str]:
    """`delete q#1` removes jobs, `delete t before=5 tag=x*` removes records."""
    if "#" in words.first() or words.first() in runner.names:
        return runner.show(words, commands.Delete(runner.named(words)[0]))
    topic = words.first().encode()
    before = words.take("before")
    tag, prefix = _prefix(words.take("tag"))
    before_seq = None if before is None else int(before)
    reply = runner.do(words, commands.DeleteRecords(topic, before_seq, tag, prefix))
    while isinstance(reply, Deleted) and reply.rest is not None:
        reply = runner.do(words, commands.DeleteMore(topic, reply.rest))
    return runner.shown.reply(reply)


def _route(runner: Runner, words: Words) -> list[str]:
    source, dest = _bytes(words, "from"), _bytes(words, "to")
    tag, prefix = _prefix(words.take("tag"))
    options = RouterOptions(
        preserve_node=_flag(words.take("preserve_node") or "yes"),
        preserve_tag=_flag(words.take("preserve_tag") or "yes"),
        filter_tag=tag,
        filter_prefix=prefix,
        allow_cycle=_flag(words.take("allow_cycle") or "no"),
        guarantee=Guarantee(words.take("guarantee") or Guarantee.AT_LEAST_ONCE),
    )
    create_dest = _flag(words.take("create_dest") or "yes")
    return runner.show(words, commands.PutRouter(words.first().encode(), source, dest, options, create_dest))


def _unroute(runner: Runner, words: Words) -> list[str]:
    return runner.show(words, commands.DropRouter(words.first().encode()))


def _routers(runner: Runner, words: Words) -> list[str]:
    return runner.show(words, commands.ListRouters())


# -- the world around


def _events(runner: Runner, words: Words) -> list[str]:
    """`events skip`: those before are not of interest."""
    seen = runner.look()
    return ["skipped"] if list(words.plain) == ["skip"] else seen


def _advance(runner: Runner, words: Words) -> list[str]:
    runner.stage.advance(milliseconds(words.first()))
    return [moment(runner.stage.now_ms)]


def _wall(runner: Runner, words: Words) -> list[str]:
    sign = -1 if words.first().startswith("-") else 1
    runner.stage.set_wall_clock(sign * milliseconds(words.first().lstrip("+-")))
    return [moment(runner.stage.now_ms)]


def _sync(runner: Runner, words: Words) -> list[str]:
    runner.stage.sync()
    return ["ok"]


def _checkpoint(runner: Runner, words: Words) -> list[str]:
    runner.stage.checkpoint()
    return ["ok"]


def _crash(runner: Runner, words: Words) -> list[str]:
    runner.stage.lose_power()
    return [moment(runner.stage.now_ms)]


def _kill(runner: Runner, words: Words) -> list[str]:
    runner.stage.kill()
    return [moment(runner.stage.now_ms)]


def _restart(runner: Runner, words: Words) -> list[str]:
    runner.stage.restart()
    return [moment(runner.stage.now_ms)]


VERBS: dict[str, Callable[[Runner, Words], list[str]]] = {
    "create": _create, "config": _configure, "drop": _drop, "status": _status, "topics": _topics,
    "enqueue": _enqueue, "lease": _lease, "share": _share, "ack": _ack, "nack": _nack, "extend": _extend,
    "working": _working, "release": _release, "requeue": _requeue, "withdraw": _withdraw,
    "reprioritise": _reprioritise, "show": _show, "peek": _peek, "stats": _stats, "pause": _pause, "purge": _purge,
    "replay": _replay, "append": _append, "read": _read, "delete": _delete, "route": _route, "unroute": _unroute,
    "routers": _routers, "events": _events, "advance": _advance, "wall": _wall, "sync": _sync,
    "checkpoint": _checkpoint, "crash": _crash, "kill": _kill, "restart": _restart,
}  # fmt: skip

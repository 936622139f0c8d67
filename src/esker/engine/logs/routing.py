"""Making, changing, showing and removing routers. A refused router leaves nothing behind, not even a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from esker.engine import commands, events, limits
from esker.engine.logs import forwarding
from esker.engine.logs.routers import Router
from esker.engine.replies import Done, Reply, RouterPage, RouterView
from esker.engine.topic import Topic
from esker.engine.topics import create_problem, make, not_found
from esker.errors import Code, Refusal, quoted

if TYPE_CHECKING:
    from esker.engine.machine import Machine


def put(machine: Machine, command: commands.PutRouter, now: int) -> Reply:
    if not command.source or not command.dest or command.source == command.dest:
        return Refusal(Code.BAD_REQUEST, "a router has a source and a dest, and they differ")
    if not 0 < len(command.name) <= limits.TOPIC_NAME_BYTES_MAX:
        return Refusal(Code.BAD_REQUEST, f"a router name has 1 to {limits.TOPIC_NAME_BYTES_MAX} bytes")
    known = machine.routers.names.get(command.name)
    if known is not None:
        return _update(machine, known, command, now)
    source, dest = machine.names.get(command.source), machine.names.get(command.dest)
    problem = _graph_problem(machine, command, source, dest) or _topics_problem(machine, command, source, dest)
    if problem is not None:
        return problem
    config = machine.log_config
    if source is None:
        source = make(machine, command.source, config, now, lazy=False)
    if dest is None:
        dest = make(machine, command.dest, config, now, lazy=False)
    number, cursor = machine.routers.next_router, source.first.next_seq - 1
    machine.record(
        None, events.RouterPut(number, now, command.name, source.number, dest.number, command.options, cursor)
    )
    return view(machine, machine.routers.numbers[number], created=True)


def _update(machine: Machine, router: Router, command: commands.PutRouter, now: int) -> Reply:
    source, dest = machine.topics[router.source], machine.topics[router.dest]
    if (source.name, dest.name) != (command.source, command.dest):
        return Refusal(
            Code.TOPIC_INCOMPATIBLE,
            f"router {quoted(router.name)} leads from {quoted(source.name)} to {quoted(dest.name)} and cannot be "
            "turned; drop it first",
            {"reason": "router_repoint_forbidden"},
        )
    if command.options == router.options:
        return view(machine, router)
    if router.options.allow_cycle and not command.options.allow_cycle:
        problem = _cycle_problem(machine, source, dest)
        if problem is not None:
            return problem
    forwarding.catch_up_router(machine, router, now)  # what was written under the old options is copied under them
    event = events.RouterPut(
        router.number, now, router.name, router.source, router.dest, command.options, router.cursor
    )
    machine.record(None, event)
    return view(machine, router)


def _graph_problem(
    machine: Machine, command: commands.PutRouter, source: Topic | None, dest: Topic | None
) -> Refusal | None:
    if dest is None:
        return None  # nothing leads to or from a topic that does not exist
    for router in machine.routers.by_dest.get(dest.number, {}).values():
        if source is None or router.source != source.number:
            feeder = machine.topics[router.source].name
            return Refusal(
                Code.TOPIC_INCOMPATIBLE,
                f"topic {quoted(dest.name)} is fed from {quoted(feeder)} by router {quoted(router.name)}; it can have "
                "no second source",
                {"reason": "router_dest_fan_in"},
            )
    return None if source is None or command.options.allow_cycle else _cycle_problem(machine, source, dest)


def _cycle_problem(machine: Machine, source: Topic, dest: Topic) -> Refusal | None:
    way = machine.routers.path(dest.number, source.number)
    if way is None:
        return None
    cycle = [source.name, *(machine.topics[number].name for number in way)]
    return Refusal(
        Code.ROUTER_CYCLE,
        f"records would go round: {' -> '.join(map(quoted, cycle))}; with allow_cycle they stop after a few hops",
        {"cycle": cycle},
    )


def _topics_problem(
    machine: Machine, command: commands.PutRouter, source: Topic | None, dest: Topic | None
) -> Refusal | None:
    if dest is None and not command.create_dest:
        return not_found(command.dest)
    missing = 0
    for name, topic in ((command.source, source), (command.dest, dest)):
        if topic is None:
            problem = create_problem(machine, name, machine.log_config, missing)
            if problem is not None:
                return problem
            missing += 1
        elif len(topic.partitions) > 1:
            return Refusal(
                Code.BAD_REQUEST,
                f"topic {quoted(name)} has {len(topic.partitions)} partitions; a router needs topics of one",
            )
    return None


def drop(machine: Machine, command: commands.DropRouter, now: int) -> Reply:
    """Answered with `Done`: 1, or 0 when there is none. What was written before is still copied."""
    router = machine.routers.names.get(command.name)
    if router is None:
        return Done(0)
    forwarding.catch_up_router(machine, router, now)
    machine.record(None, events.RouterDropped(router.number, now))
    return Done(1)


def drop_all_of(machine: Machine, topic: Topic, now: int) -> list[bytes]:
    """The topic is about to go: its routers go first. Returns their names."""
    routers = machine.routers.of(topic)
    for router in routers:
        if router.source == topic.number:
            forwarding.catch_up_router(machine, router, now)
    for router in routers:
        machine.record(None, events.RouterDropped(router.number, now))
    return [router.name for router in routers]


def state(machine: Machine, command: commands.RouterState, now: int) -> Reply:
    router = machine.routers.names.get(command.name)
    if router is None:
        return Refusal(Code.ROUTER_NOT_FOUND, f"no router {quoted(command.name)}", {"router": command.name})
    forwarding.catch_up_router(machine, router, now)
    return view(machine, router)


def listing(machine: Machine, command: commands.ListRouters, now: int) -> Reply:
    page: list[Router] = []
    more = False
    for router in machine.routers.named_from(command.prefix, command.after):
        source, dest = machine.topics[router.source].name, machine.topics[router.dest].name
        if command.source not in (None, source) or command.dest not in (None, dest):
            continue
        if len(page) == command.count:
            more = True
            break
        page.append(router)
    for router in page:
        forwarding.catch_up_router(machine, router, now)
    return RouterPage([view(machine, router) for router in page], more)


def view(machine: Machine, router: Router, created: bool = False) -> RouterView:
    return RouterView(
        router.name,
        machine.topics[router.source].name,
        machine.topics[router.dest].name,
        router.options,
        router.created_ms,
        router.forwarded,
        created,
    )

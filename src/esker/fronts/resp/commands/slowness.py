"""SLOWLOG and LATENCY: which commands took long, and when replies did."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from esker.fronts.access import Scope
from esker.fronts.resp import arguments as reading
from esker.fronts.resp import encoding
from esker.fronts.resp.commands.table import command
from esker.fronts.resp.errors import CommandError
from esker.fronts.resp.rules import OPERATES, Reach, Rule

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection
    from esker.fronts.resp.meters import LatencyMonitor, SlowCommand

_BARS: Final = "_o#"
_GRAPH_ROWS: Final = 4


@command(b"SLOWLOG", -2, "admin", rule=Rule(Reach.NODE, Scope.ADMIN | Scope.READ))
def slowlog(client: Connection, arguments: list[bytes]) -> bytes:
    subcommand, log = arguments[1].upper(), client.server.slowlog
    if subcommand == b"GET" and len(arguments) in (2, 3):
        count = 10
        if len(arguments) == 3:
            count = reading.integer(
                arguments[2], -1, reading.INT64_MAX, "ERR count should be greater than or equal to -1"
            )
        return encoding.array([_entry(entry) for entry in log.latest(count)])
    if subcommand == b"LEN" and len(arguments) == 2:
        return encoding.integer(len(log))
    if subcommand == b"RESET" and len(arguments) == 2:
        log.reset()
        return encoding.OK
    raise CommandError("ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN.")


def _entry(entry: SlowCommand) -> bytes:
    return encoding.array(
        [
            encoding.integer(entry.id),
            encoding.integer(entry.time_s),
            encoding.integer(entry.duration_us),
            encoding.bulks(entry.arguments),
            encoding.text(entry.address),
            encoding.bulk(entry.name),
        ]
    )


@command(b"LATENCY", -2, "admin", rule=OPERATES)
def latency(client: Connection, arguments: list[bytes]) -> bytes:
    subcommand, monitor = arguments[1].upper(), client.server.latency
    events = [argument.decode("latin-1") for argument in arguments[2:]]
    if subcommand == b"LATEST" and not events:
        return encoding.array([_latest(monitor, event) for event in monitor.events])
    if subcommand == b"HISTORY" and len(events) == 1:
        samples = monitor.history(events[0])
        return encoding.array(
            [encoding.array([encoding.integer(s.time_s), encoding.integer(s.latency_ms)]) for s in samples]
        )
    if subcommand == b"RESET":
        return encoding.integer(monitor.reset(events))
    if subcommand == b"GRAPH" and len(events) == 1:
        if not monitor.history(events[0]):
            raise CommandError(f"ERR No samples available for event '{events[0][:64]}'")
        return encoding.text(_graph(monitor, events[0]))
    if subcommand == b"DOCTOR" and not events:
        return encoding.text(_advice(client, monitor))
    raise CommandError("ERR Unknown LATENCY subcommand or wrong # of args. Try LATEST, HISTORY, RESET, GRAPH, DOCTOR.")


def _latest(monitor: LatencyMonitor, event: str) -> bytes:
    last = monitor.history(event)[-1]
    numbers = (last.time_s, last.latency_ms, monitor.worst_ms(event))
    return encoding.array([encoding.text(event), *map(encoding.integer, numbers)])


def _graph(monitor: LatencyMonitor, event: str) -> str:
    """Columns of samples, oldest left, the age of each beneath."""
    samples = monitor.history(event)
    values = [sample.latency_ms for sample in samples]
    low, high = min(values), max(values)
    scale = _GRAPH_ROWS * len(_BARS) - 1
    heights = [(value - low) * scale // (high - low) if high > low else 0 for value in values]
    lines = [f"{event} - high {high} ms, low {low} ms (all time high {monitor.worst_ms(event)} ms)", "-" * 80]
    for row in reversed(range(_GRAPH_ROWS)):
        floor = row * len(_BARS)
        lines.append("".join(_bar(height - floor) for height in heights))
    now = int(time.time())
    lines += ["", f"{len(samples)} samples, {now - samples[0].time_s} s ago to {now - samples[-1].time_s} s ago"]
    return "\n".join(lines) + "\n"


def _bar(height: int) -> str:
    return " " if height < 0 else _BARS[min(height, len(_BARS) - 1)]


def _advice(client: Connection, monitor: LatencyMonitor) -> str:
    threshold = client.server.options.latency_threshold_ms
    if not threshold:
        return "Latency monitoring is off. Turn it on with CONFIG SET latency-monitor-threshold <milliseconds>.\n"
    if not monitor.events:
        return f"No latency spike of {threshold} ms or more was seen.\n"
    lines = []
    for event in monitor.events:
        samples = monitor.history(event)
        average = sum(sample.latency_ms for sample in samples) // len(samples)
        lines.append(f"{event}: {len(samples)} spikes, average {average} ms, worst {monitor.worst_ms(event)} ms.")
    if "durability" in monitor.events:
        lines.append("durability: replies waited for the disk. Look at its load, or at a topic's durability class.")
    if "command" in monitor.events:
        lines.append(
            "command: one command took long. SLOWLOG GET names it; large COUNTs and BUSYLOOP scans are likely."
        )
    return "\n".join(lines) + "\n"

"""A node that starts with a wrong clock loses nothing, says so, and can be told that the clock is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from esker.node.clockkeeping import Note, machine_run, read_note, started_clock

YEAR_S = 365 * 86_400

# The clock of a whole process, set before anything has looked at it.
NODE = """
import json, sys, time
data, ahead_s, commands = sys.argv[1], float(sys.argv[2]), json.loads(sys.argv[3])
real = time.time
time.time = lambda: real() + ahead_s
import redis
from esker.testing.broker import Broker
with Broker(data=data, **json.loads(sys.argv[4])) as broker, redis.Redis(port=broker.resp_port, protocol=2) as client:
    replies = []
    for command in commands:
        reply = client.execute_command(*command)
        replies.append(reply.decode() if isinstance(reply, bytes) else reply)
    info = client.info("all")
    print(json.dumps([replies, info["clock_held"], info["clock_drift_ms"]]))
"""

ADD = ["ADDJOB", "q", "body", 0]


def run_node(data: Path, ahead_s: int, *commands: list[object], **settings: str) -> tuple[list[object], bool, int]:
    arguments = [str(data), str(ahead_s), json.dumps(commands), json.dumps(settings)]
    done = subprocess.run(
        [sys.executable, "-c", NODE, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    replies, held, drift_ms = json.loads(done.stdout.splitlines()[-1])
    return replies, bool(held), drift_ms


def other_run(data: Path) -> None:
    """As if the machine had been started again since the node ran."""
    file = data / "clock"
    note = json.loads(file.read_bytes())
    assert note["run"] == machine_run()[0]
    file.write_text(json.dumps({**note, "run": "another"}))


@pytest.mark.parametrize("rebooted", [False, True])
def test_jobs_survive_a_start_with_a_clock_a_year_ahead(tmp_path: Path, rebooted: bool) -> None:
    data = tmp_path / "data"
    _, held, _ = run_node(data, 0, ADD, ADD)
    assert not held
    if rebooted:
        other_run(data)
    replies, held, drift_ms = run_node(data, YEAR_S, ["QLEN", "q"], ADD)
    assert (replies[0], held) == (2, True)
    assert drift_ms == pytest.approx(YEAR_S * 1000, rel=0.01)
    replies, held, _ = run_node(data, 0, ["QLEN", "q"])  # the clock is right again, and nothing is left of the year
    assert (replies, held) == ([3], False)


def test_a_clock_that_is_confirmed_is_followed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    run_node(data, 0, ADD)
    confirm: list[object] = ["CONFIG", "SET", "clock-jump-max", 0]
    replies, held, _ = run_node(data, YEAR_S, ["QLEN", "q"], confirm, ["GETJOB", "NOHANG", "FROM", "q"])
    assert (replies, held) == ([1, "OK", None], False)
    run_node(data, 0, ADD)
    replies, held, _ = run_node(data, 2 * YEAR_S, ["GETJOB", "NOHANG", "FROM", "q"], clock_jump_max_s="0")
    assert (replies, held) == ([None], False)


def test_a_note_that_is_damaged_or_missing_is_none(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    assert read_note(file) is None
    for text in (b"", b"{", b'{"time_ms": 1}', b'{"time_ms": "x", "run": "", "uptime_ms": 0}', os.urandom(20)):
        file.write_bytes(text)
        assert read_note(file) is None
    file.write_bytes(b'{"time_ms": 5, "run": "r", "uptime_ms": 7}')
    assert read_note(file) == Note(5, "r", 7)


def test_on_the_same_run_of_a_machine_the_time_that_passed_is_known(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    run, uptime_ms = machine_run()
    if not run:
        pytest.skip("this system does not name its runs")
    long_ago = 1_600_000_000_000
    file.write_text(json.dumps({"time_ms": long_ago, "run": run, "uptime_ms": uptime_ms - 5000}))
    clock = started_clock(file, long_ago - 7, 86_400_000)
    assert clock.held
    assert 5000 <= clock.now_ms() - long_ago < 65_000


def test_a_machine_without_runs_is_known_by_its_wall_clock_alone(tmp_path: Path) -> None:
    assert machine_run(tmp_path) == ("", 0)

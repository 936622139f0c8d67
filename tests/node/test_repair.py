"""Damage to the journal of a node, and what `esker journal repair` makes of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
import redis
from typer.testing import CliRunner

from esker.cli.journal import app
from esker.errors import JournalCorrupt
from esker.testing.broker import Broker

Jobs = set[bytes]


def add(broker: Broker, bodies: Iterable[int]) -> None:
    """Each in a batch of its own."""
    with redis.Redis(port=broker.resp_port) as client:
        for body in bodies:
            client.execute_command("ADDJOB", "q", b"job %d" % body, 0)


def bodies(data: Path) -> Jobs:
    with Broker(str(data)) as broker, redis.Redis(port=broker.resp_port) as client:
        found: Jobs = set()
        while jobs := client.execute_command("GETJOB", "NOHANG", "COUNT", 100, "FROM", "q"):
            found.update(body for _, _, body in jobs)
        return found


def expected(numbers: Iterable[int]) -> Jobs:
    return {b"job %d" % number for number in numbers}


def flip(data: Path, body: int) -> None:
    """A bit of the batch that holds this job."""
    (path,) = (data / "journal").glob("*.segment")
    content = bytearray(path.read_bytes())
    content[content.index(b"job %d" % body)] ^= 1
    path.write_bytes(content)


def repaired(data: Path, *options: str) -> str:
    result = CliRunner().invoke(app, ["repair", str(data / "journal"), *options], input="n\n")
    return " ".join(result.output.split()) + f" exit {result.exit_code}"


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """Thirty jobs, and a stop in order: the checkpoint has all of them."""
    with Broker(str(tmp_path / "data")) as broker:
        add(broker, range(10, 40))
    return tmp_path / "data"


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A checkpoint after twenty jobs, ten more behind it, and no stop."""
    with Broker(str(tmp_path / "data")) as broker:
        add(broker, range(10, 30))
        broker.restart()
        add(broker, range(30, 40))
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
    return tmp_path / "killed"


def test_a_journal_that_rotted_after_a_stop_costs_nothing(stopped: Path) -> None:
    flip(stopped, 20)
    with pytest.raises(JournalCorrupt, match="esker journal repair"):
        Broker(str(stopped)).start()
    said = repaired(stopped)
    assert "Nothing is lost" in said
    assert said.endswith("exit 0"), "there is nothing to ask about"
    assert bodies(stopped) == expected(range(10, 40))


def test_what_rots_before_the_checkpoint_costs_nothing_of_what_came_behind_it(killed: Path) -> None:
    flip(killed, 20)
    assert "Nothing is lost" in repaired(killed)
    assert bodies(killed) == expected(range(10, 40))


def test_what_rots_behind_the_checkpoint_is_lost_with_all_that_follows_and_asked_for(killed: Path) -> None:
    flip(killed, 35)
    said = repaired(killed)
    assert "Lost: positions" in said
    assert said.endswith("exit 1"), "it was not agreed to"
    with pytest.raises(JournalCorrupt):
        Broker(str(killed)).start()
    assert repaired(killed, "--yes").endswith("exit 0")
    assert bodies(killed) == expected(range(10, 35))


def test_a_check_beside_a_running_node_changes_nothing(tmp_path: Path) -> None:
    with Broker(str(tmp_path / "data")) as broker:
        add(broker, range(10, 20))
        broker.restart()
        names = {path.name for path in (tmp_path / "data" / "store").iterdir()}
        result = CliRunner().invoke(app, ["check", str(tmp_path / "data" / "journal")])
        assert result.exit_code == 0, result.output
        assert {path.name for path in (tmp_path / "data" / "store").iterdir()} == names
        add(broker, range(20, 30))
    assert bodies(tmp_path / "data") == expected(range(10, 30))

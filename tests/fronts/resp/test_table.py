"""The table of commands covers the contract, and every refusal of the engine has a prefix."""

from __future__ import annotations

import pytest

from esker.errors import Code
from esker.fronts.resp.commands import COMMANDS
from esker.fronts.resp.errors import PREFIXES

# Name and arity of every command of Disque; QUIT comes on top. A few take more here than there.
DISQUE = {
    "ADDJOB": -4, "GETJOB": -2, "ACKJOB": -1, "FASTACK": -1, "NACK": -1, "ENQUEUE": -1, "DEQUEUE": -1, "DELJOB": -1,
    "SHOW": 2, "QLEN": 2, "QPEEK": 3, "QSTAT": 2, "QSCAN": -1, "JSCAN": -1, "PAUSE": -3, "INFO": -1,
    "CLUSTER": -2, "CONFIG": -2, "DEBUG": -2, "BGREWRITEAOF": 1, "SHUTDOWN": -1, "LOADJOB": 2, "PING": -1, "TIME": 1,
    "MONITOR": 1, "CLIENT": -2, "SLOWLOG": -2, "LATENCY": -2,
}  # fmt: skip
WIDER = {"HELLO": -1, "WORKING": -2, "AUTH": -2, "COMMAND": -1, "QUIT": -1}
SEED = {"GETJOBS": "GETJOB", "QUEUE": "ENQUEUE", "SCANJOBS": "JSCAN", "SCANQUEUES": "QSCAN"}
OWN = {"TOPIC", "DLQ", "JOB", "ECHO", "SELECT", "MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"}


@pytest.mark.parametrize(("name", "arity"), [*DISQUE.items(), *WIDER.items()])
def test_every_command_of_disque_is_there_with_its_arity(name: str, arity: int) -> None:
    assert COMMANDS[name.encode()].arity == arity


@pytest.mark.parametrize(("older", "final"), SEED.items())
def test_the_older_names_mean_the_same(older: str, final: str) -> None:
    assert COMMANDS[older.encode()].handler is COMMANDS[final.encode()].handler


def test_there_is_no_command_without_a_reason() -> None:
    assert {name.decode() for name in COMMANDS} == {*DISQUE, *WIDER, *SEED, *OWN}


def test_every_refusal_has_a_prefix() -> None:
    assert set(PREFIXES) == set(Code)

"""Operating through the Redis protocol: clients, configuration, what the server knows about itself."""

from __future__ import annotations

import os
import time

import pytest

from esker.testing.broker import Broker
from tests.fronts.resp.wire import Failure, Reply, Simple, Wire, encoded


def text(reply: Reply) -> str:
    assert isinstance(reply, bytes), reply
    return reply.decode()


def fields(line: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in line.split())


def facts(reply: Reply) -> dict[str, str]:
    return dict(line.split(":", 1) for line in text(reply).splitlines() if ":" in line)


def test_client_list_knows_names_and_what_they_do(wire: Wire, other: Wire) -> None:
    assert other("CLIENT", "GETNAME") is None
    assert other("CLIENT", "SETNAME", "worker-7") == Simple("OK")
    assert other("CLIENT", "SETNAME", "a b") == Failure(
        "ERR Client names cannot contain spaces, newlines or special characters."
    )
    assert other("CLIENT", "SETINFO", "LIB-NAME", "mine") == Simple("OK")
    who = other("CLIENT", "ID")
    lines = text(wire("CLIENT", "LIST")).splitlines()
    found = [line for line in map(fields, lines) if line["id"] == str(who)]
    assert [(line["name"], line["cmd"], line["lib-name"]) for line in found] == [("worker-7", "client", "mine")]
    assert fields(text(other("CLIENT", "INFO")))["id"] == str(who)
    assert text(wire("CLIENT", "LIST", "TYPE", "pubsub")) == ""
    assert len(text(wire("CLIENT", "LIST", "ID", who if isinstance(who, int) else 0)).splitlines()) == 1


def test_a_client_can_be_killed_by_id_or_address(broker: Broker) -> None:
    with Wire(broker.resp_port) as wire:
        for how in ("ID", "ADDR"):
            with Wire(broker.resp_port) as victim:
                line = fields(text(victim("CLIENT", "INFO")))
                assert wire("CLIENT", "KILL", how, line["id"] if how == "ID" else line["addr"]) == 1
                assert victim.ended()
        assert wire("CLIENT", "KILL", "127.0.0.1:1") == Failure("ERR No such client")
        assert wire("CLIENT", "KILL", "TYPE", "normal") == 0  # itself is spared
        assert wire("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no") == 1
        assert wire.ended()


def test_replies_can_be_turned_off_or_skipped_once(wire: Wire, queue: bytes) -> None:
    wire.send(
        encoded("CLIENT", "REPLY", "SKIP")
        + encoded("PING", "unheard")
        + encoded("PING", "heard")
        + encoded("CLIENT", "REPLY", "OFF")
        + encoded("ADDJOB", queue, "a", 0)
        + encoded("NONSENSE")
        + encoded("GETJOB", "NOHANG", "FROM", queue)
        + encoded("CLIENT", "REPLY", "ON")
        + encoded("QSTAT", queue)
    )
    assert wire.reply() == b"heard"
    assert wire.reply() == Simple("OK")
    stat = wire.reply()
    assert isinstance(stat, list)
    assert stat[3] == 0  # the job was added and got, without a word


def test_paused_clients_wait_and_then_go_on(broker: Broker) -> None:
    with Wire(broker.resp_port) as wire, Wire(broker.resp_port) as other:
        assert wire("CLIENT", "PAUSE", 60_000, "WRITE") == Simple("OK")
        assert other("QLEN", "q") == 0
        other.send(encoded("ADDJOB", "q", "a", 0) + encoded("QLEN", "q"))
        assert other.silent()
        assert wire("CLIENT", "UNPAUSE") == Simple("OK")
        added, length = other.replies(2)
        assert isinstance(added, Simple)
        assert length == 1
        began = time.monotonic()
        assert wire("CLIENT", "PAUSE", 200) == Simple("OK")
        assert other("PING") == Simple("PONG")
        assert time.monotonic() - began >= 0.15


def test_config_shows_and_sets_what_exists(broker: Broker) -> None:
    with Wire(broker.resp_port) as wire:
        assert wire("CONFIG", "GET", "maxclients") == [b"maxclients", b"10000"]
        everything = wire("CONFIG", "GET", "*")
        assert isinstance(everything, list)
        assert len(everything) > 50
        assert wire("CONFIG", "GET", "slowlog-*", "appendfsync") == [
            b"slowlog-log-slower-than", b"10000", b"slowlog-max-len", b"128", b"appendfsync", b"always",
        ]  # fmt: skip
        assert wire("CONFIG", "SET", "maxmemory", "64mb") == Simple("OK")
        assert wire("CONFIG", "GET", "maxmemory") == [b"maxmemory", b"67108864"]
        assert wire("CONFIG", "SET", "maxclients", "77", "timeout", "300") == Simple("OK")
        assert wire("CONFIG", "GET", "maxclients") == [b"maxclients", b"77"]
        assert wire("CONFIG", "SET", "appendonly", "yes") == Simple("OK")
        assert wire("CONFIG", "SET", "appendonly", "no") == Failure(
            "ERR CONFIG parameter appendonly is always 'yes' here"
        )
        assert "maxclients" in str(wire("CONFIG", "SET", "maxclients", "many"))
        assert wire("CONFIG", "SET", "nonsense", "1") == Failure("ERR Unsupported CONFIG parameter: nonsense")
        refused = str(wire("CONFIG", "REWRITE"))
        assert refused.startswith("ERR The server is running without a config file")
        assert "esker.toml" in refused
        assert wire("CONFIG", "RESETSTAT") == Simple("OK")
        assert facts(wire("INFO", "stats"))["total_commands_processed"] in ("0", "1")


def test_info_has_disques_sections(wire: Wire) -> None:
    wire("PING")
    titles = [line[2:] for line in text(wire("INFO")).splitlines() if line.startswith("# ")]
    assert titles[:8] == ["Server", "Clients", "Memory", "Jobs", "Queues", "Persistence", "Stats", "CPU"]
    assert "Commandstats" not in titles
    known = facts(wire("INFO", "all"))
    for name in (
        "disque_version", "disque_git_sha1", "disque_build_id", "gcc_version", "executable", "hz", "run_id",
        "connected_clients", "blocked_clients", "client_longest_output_list", "used_memory", "used_memory_human",
        "mem_fragmentation_ratio", "registered_jobs", "registered_queues", "aof_enabled", "aof_state",
        "aof_last_write_status", "instantaneous_ops_per_sec", "rejected_connections", "used_cpu_sys_children",
    ):  # fmt: skip
        assert name in known
    assert known["cmdstat_ping"].startswith("calls=")
    assert text(wire("INFO", "jobs")).startswith("# Jobs\r\n")


def test_slow_commands_are_noted(broker: Broker) -> None:
    with Wire(broker.resp_port) as wire:
        assert wire("SLOWLOG", "LEN") == 0
        wire("CONFIG", "SET", "slowlog-log-slower-than", 0, "latency-monitor-threshold", 1)
        wire("ADDJOB", "q", "x" * 1000, *([0] + ["ASYNC"] * 40))
        entries = wire("SLOWLOG", "GET", 1)
        assert isinstance(entries, list)
        entry = entries[0]
        assert isinstance(entry, list)
        arguments = entry[3]
        assert isinstance(arguments, list)
        assert len(arguments) == 32
        assert arguments[2] == b"x" * 128 + b"... (872 more bytes)"
        assert arguments[-1] == b"... (13 more arguments)"
        wire("CONFIG", "SET", "slowlog-log-slower-than", -1)
        assert wire("SLOWLOG", "RESET") == Simple("OK")
        assert wire("SLOWLOG", "LEN") == 0
        assert "SLOWLOG subcommand" in str(wire("SLOWLOG", "WHAT"))


def test_latency_of_the_disk_is_sampled(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fdatasync

    def slow(descriptor: int) -> None:
        time.sleep(0.02)
        sync(descriptor)

    with Wire(broker.resp_port) as wire:
        assert wire("LATENCY", "LATEST") == []
        assert "off" in text(wire("LATENCY", "DOCTOR"))
        wire("CONFIG", "SET", "latency-monitor-threshold", 5)
        monkeypatch.setattr(os, "fdatasync", slow)
        wire("ADDJOB", "q", "a", 0)
        monkeypatch.undo()
        latest = wire("LATENCY", "LATEST")
        assert isinstance(latest, list)
        # A busy machine may make a command slow too: only the disk is looked at.
        assert b"durability" in [event[0] for event in latest if isinstance(event, list)]
        history = wire("LATENCY", "HISTORY", "durability")
        assert isinstance(history, list)
        assert len(history) == 1
        assert "durability" in text(wire("LATENCY", "DOCTOR"))
        assert text(wire("LATENCY", "GRAPH", "durability")).startswith("durability - high ")
        assert wire("LATENCY", "RESET", "durability") == 1
        assert wire("LATENCY", "HISTORY", "durability") == []


def test_a_monitor_sees_every_command_but_no_password(broker: Broker) -> None:
    with Wire(broker.resp_port) as monitor, Wire(broker.resp_port) as wire:
        assert monitor("MONITOR") == Simple("OK")
        wire("AUTH", "secret")
        wire("ADDJOB", "q", b'a"\n\xff', 0)
        line = monitor.reply()
        assert isinstance(line, Simple)
        assert line.endswith('] "ADDJOB" "q" "a\\"\\n\\xff" "0"')
        assert line.split()[1] == "[0"
    with Wire(broker.resp_port) as wire:
        assert wire("PING") == Simple("PONG")


def test_a_cluster_of_one_tells_the_truth(wire: Wire, shared_broker: Broker) -> None:
    node = text(wire("CLUSTER", "MYID"))
    assert len(node) == 40
    assert text(wire("CLUSTER", "NODES")) == f"{node} :{shared_broker.resp_port} myself 0 0 connected\n"
    info = facts(wire("CLUSTER", "INFO"))
    assert (info["cluster_state"], info["cluster_size"], info["cluster_reachable_nodes"]) == ("ok", "1", "0")
    assert str(wire("CLUSTER", "MEET", "127.0.0.1", 7712)).startswith("ERR ")
    assert str(wire("CLUSTER", "FORGET", node)).startswith("ERR ")
    assert wire("CLUSTER", "FORGET", "a" * 40) == Failure(f"ERR Unknown node {'a' * 40}")
    assert wire("CLUSTER", "SAVECONFIG") == Simple("OK")
    assert str(wire("CLUSTER", "RESET", "HARD")).startswith("ERR ")
    assert wire("CLUSTER", "WHAT") == Failure("ERR Wrong CLUSTER subcommand or number of arguments")


def test_the_table_of_commands_can_be_read(wire: Wire) -> None:
    count = wire("COMMAND", "COUNT")
    everything = wire("COMMAND")
    assert isinstance(everything, list)
    assert len(everything) == count
    described = wire("COMMAND", "INFO", "qlen", "nonsense")
    assert isinstance(described, list)
    assert described[0] == [b"qlen", 2, [Simple("fast"), Simple("readonly")], 0, 0, 0]
    assert described[1] is None
    assert {tuple(entry[3:]) for entry in everything if isinstance(entry, list)} == {(0, 0, 0)}, "Disque has no keys"
    docs = wire("COMMAND", "DOCS", "GETJOB")
    assert isinstance(docs, list)
    assert docs[0] == b"getjob"


def test_time_and_rewrite_and_debug_answer(wire: Wire) -> None:
    seconds = wire("TIME")
    assert isinstance(seconds, list)
    assert isinstance(seconds[0], bytes)
    assert abs(int(seconds[0]) - time.time()) < 5
    assert isinstance(wire("BGREWRITEAOF"), Simple)
    assert wire("DEBUG", "ERROR", "MINE text") == Failure("MINE text")
    sizes = wire("DEBUG", "STRUCTSIZE")
    assert isinstance(sizes, bytes)
    assert [pair.partition(b":")[0] for pair in sizes.split(b" ")] == [b"bits", b"job", b"queue", b"sdshdr"]
    assert all(pair.partition(b":")[2].isdigit() for pair in sizes.split(b" "))
    assert str(wire("DEBUG", "CRASH")).startswith("ERR DEBUG CRASH is not supported")
    assert wire("DEBUG", "SLEEP", "nan") == Failure("ERR SLEEP takes 0 to 3600 seconds")
    assert wire("SELECT", 0) == Simple("OK")
    assert wire("ECHO", "hi") == b"hi"


def test_shutdown_ends_the_server_and_keeps_its_jobs(broker: Broker) -> None:
    with Wire(broker.resp_port) as wire:
        wire.send(encoded("ADDJOB", "q", "a", 0) + encoded("SHUTDOWN"))
        assert isinstance(wire.reply(), Simple)
        assert wire.ended()
    broker.restart()
    with Wire(broker.resp_port) as wire:
        assert wire("QLEN", "q") == 1

"""The HTTP document tells the truth: its transcripts go as printed, in both protocols, and its lists are complete."""

from __future__ import annotations

import json
import re
import subprocess
from inspect import signature
from pathlib import Path

import httpx
import pytest
import redis

from esker.cli.serve import serve
from esker.fronts.http.answers import ConfigAnswer
from esker.fronts.http.errors import STATUSES
from esker.fronts.http.table import ROUTES
from esker.node.settings import Settings, table
from esker.testing import Broker

DOCUMENT = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text()

# Values that differ from run to run, by their names.
_OWN = {"$ts", "lease_id", "deadline", "server_total_ms", "fsync_ms", "message", "bytes"}


def _transcript() -> list[tuple[str, str]]:
    """Commands and what they print, in order."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", DOCUMENT, re.DOTALL):
        found += re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    return found


def _comparable(value: object) -> object:
    if isinstance(value, dict):
        return {
            name: type(one).__name__ if name in _OWN and one != 0 else _comparable(one) for name, one in value.items()
        }
    if isinstance(value, list):
        return [_comparable(one) for one in value]
    return value


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_the_transcripts_go_as_printed(version: str) -> None:
    steps = _transcript()
    assert len(steps) >= 12
    with Broker() as broker:
        for command, printed in steps:
            assert command.startswith("curl ")
            run = command.replace("curl ", f"curl {version} ", 1).replace(
                "localhost:4000", f"127.0.0.1:{broker.http_port}"
            )
            said = subprocess.run(run, shell=True, capture_output=True, text=True, timeout=30, check=True).stdout
            assert _comparable(json.loads(said)) == _comparable(json.loads(printed)), command


def test_every_route_and_its_parameters_are_documented() -> None:
    rows = dict(re.findall(r"^\| (`(?:GET|PUT|POST|DELETE) [^|]*) \|([^|]*)\|", DOCUMENT, re.MULTILINE))
    for route in ROUTES:
        method = "GET" if route.method == "WEBSOCKET" else route.method
        path = re.sub(r"\{(\w+)\}", r":\1", route.path)
        (told,) = [row for row in rows.items() if f"`{method} {path}`" in row[0]]
        for parameter in route.query:
            if parameter.name != "token":
                assert f"`{parameter.name}`" in told[1], f"{route.path}: {parameter.name}"


def test_every_config_field_and_error_is_documented() -> None:
    assert not [name for name in ConfigAnswer.__struct_fields__ if f"`{name}`" not in DOCUMENT]
    assert not [word for _, word in STATUSES.values() if f"`{word}`" not in DOCUMENT]


def test_the_settings_with_a_flag_of_their_own_are_listed() -> None:
    flags = {f"--{name.replace('_', '-')}" for name in signature(serve).parameters} - {"--config", "--set-"}
    listed = re.search(r"flag of their own: (.*?)\.", DOCUMENT, re.DOTALL)
    assert listed is not None
    assert set(re.findall(r"`([^`]+)`", listed[1])) == flags


def test_the_settings_are_there_and_have_these_defaults() -> None:
    names = {name for name, *_ in table()}
    for variable in re.findall(r"ESKER_([A-Z_]+)", DOCUMENT):
        assert variable.lower() in names
    settings = Settings()
    for variable, default in re.findall(r"^\| `ESKER_([A-Z_]+)` \| (-?\d+) \|", DOCUMENT, re.MULTILINE):
        assert int(getattr(settings, variable.lower())) == int(default)


def test_a_topic_gets_the_class_that_the_document_says() -> None:
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| (?:[^|]*: )?(?:`(\w+)`|that of the queue) \|$", DOCUMENT, re.MULTILINE)
    documented = {made: durability or "fsync" for made, durability in rows}
    with (
        Broker() as broker,
        httpx.Client(base_url=f"{broker.http_url}/v0") as web,
        redis.Redis(port=broker.resp_port, protocol=2) as client,
    ):
        web.put("/topics/put.log", json={}).raise_for_status()
        web.put("/topics/put.queue", json={"type": "queue"}).raise_for_status()
        web.post("/topics/written", json={"records": [{"data": 1}]}).raise_for_status()
        web.post(
            "/topics/written.queue", json={"records": [{"data": 1}], "config": {"type": "queue"}}
        ).raise_for_status()
        client.execute_command("ADDJOB", "added", "x", 0)
        client.execute_command("PAUSE", "paused", "in")
        client.execute_command("TOPIC", "CREATE", "created.queue", "max_deliveries", 1, "dead_letter", "dead")
        client.execute_command("TOPIC", "CREATE", "created.log", "type", "log")
        web.put("/routers/r", json={"source": "from", "dest": "to"}).raise_for_status()
        client.execute_command("ADDJOB", "created.queue", "x", 0)
        ((_, job, _),) = client.execute_command("GETJOB", "FROM", "created.queue")
        client.execute_command("NACK", job)
        client.execute_command("GETJOB", "NOHANG", "FROM", "created.queue")
        found = {row["topic"]: web.get(f"/topics/{row['topic']}").json() for row in web.get("/topics").json()["topics"]}
    shown = {name: status["config"]["durability"] for name, status in found.items()}
    made = {
        "a PUT without `durable` or `durability`": ["put.log", "put.queue"],
        "the first write over HTTP or a WebSocket": ["written", "written.queue"],
        "the first `ADDJOB` or `PAUSE`": ["added", "paused"],
        "`TOPIC CREATE` without `durability`": ["created.queue", "created.log"],
        "a router, for an end that is missing": ["from", "to"],
        "a queue, for its dead-letter topic that is missing": ["dead"],
    }
    assert shown == {name: documented[how] for how, names in made.items() for name in names}

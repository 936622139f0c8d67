"""The HTTP document tells the truth: its transcripts go as printed, in both protocols, and its lists are complete."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

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


def test_the_settings_are_there_and_have_these_defaults() -> None:
    names = {name for name, *_ in table()}
    for variable in re.findall(r"ESKER_([A-Z_]+)", DOCUMENT):
        assert variable.lower() in names
    settings = Settings()
    for variable, default in re.findall(r"^\| `ESKER_([A-Z_]+)` \| (-?\d+) \|", DOCUMENT, re.MULTILINE):
        assert int(getattr(settings, variable.lower())) == int(default)

"""The documents tell the truth: their examples run, and their lists are complete."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import redis

from esker.engine.config import Backoff, TopicConfig
from esker.fronts.resp.commands import COMMANDS
from esker.node.settings import table
from esker.testing import Broker

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROTOCOL = (ROOT / "docs" / "redis-protocol.md").read_text()


def _examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_examples_of_the_readme_run() -> None:
    worker, _, testing = _examples("python")  # the second one needs Spark: tests/spark/test_readme.py
    printed = io.StringIO()
    with Broker() as broker, contextlib.redirect_stdout(printed):
        exec(worker.replace("7711", str(broker.resp_port)), {})
        exec(testing, {})
    assert printed.getvalue() == "to: ann\nTrue\n"


def test_the_first_session_of_the_readme_goes_as_printed() -> None:
    found = re.search(r"^```\n(\$ redis-cli.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert found is not None
    session = found[1]
    typed = re.findall(r"^127\.0\.0\.1:7711> (.*)$", session, re.MULTILINE)
    assert [line.split()[0] for line in typed] == ["ADDJOB", "ADDJOB", "GETJOB", "ACKJOB"]
    with Broker() as broker, redis.Redis(port=broker.resp_port, protocol=2) as client:
        first = client.execute_command(*shlex.split(typed[0]))
        second = client.execute_command(*shlex.split(typed[1]))
        assert len(first) == len(second) == 48
        assert client.execute_command(*shlex.split(typed[2])) == [[b"mail", second, b"to: bob"]]
        assert client.execute_command("ACKJOB", second) == 1


def test_the_commands_that_the_readme_names_are_accepted() -> None:
    with Broker() as broker, redis.Redis(port=broker.resp_port, protocol=2) as client:
        client.execute_command("ADDJOB", "mail", "x", 0)
        for line in (
            "TOPIC CONFIG mail max_deliveries 5 dead_letter mail.dead",
            "TOPIC CREATE bulk mode max durability disk",
            "TOPIC CREATE mail.dead",
            "DLQ LIST mail.dead",
            "DLQ REPLAY mail.dead COUNT 10",
        ):
            assert line.startswith("TOPIC CREATE mail.dead") or f"`{line}`" in README
            client.execute_command(*line.split())


def test_every_command_and_config_key_is_documented() -> None:
    missing = [name.decode() for name in COMMANDS if not re.search(rf"\b{name.decode()}\b", PROTOCOL)]
    assert not missing
    keys = [field for field in TopicConfig.__struct_fields__ if field != "backoff"]
    assert not [key for key in keys if f"`{key}`" not in PROTOCOL]
    assert not [key for key in Backoff.__struct_fields__ if f".{key}`" not in PROTOCOL]


def test_the_settings_named_in_the_readme_exist() -> None:
    names = {name for name, *_ in table()}
    for variable in re.findall(r"ESKER_([A-Z_]+)", README):
        assert variable.lower() in names


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name} links to {target}"

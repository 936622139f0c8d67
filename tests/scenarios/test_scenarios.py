"""Every scenario has the output that its file says. `--rewrite-scenarios` writes the output of now into the files."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.scenarios.runner import play
from tests.scenarios.script import ScenarioError

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.txt"))
SEEDS = ("disheap", "prio", "disque", "topics", "gomsg")


def _difference(text: str, seen: str) -> str:
    return "\n".join(unified_diff(text.splitlines(), seen.splitlines(), "expected", "seen", lineterm=""))


def _name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_a_scenario_goes_as_it_says(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    seen = play(text)
    if request.config.getoption("rewrite_scenarios"):
        path.write_text(seen, encoding="utf-8")
        return
    assert not (found := _difference(text, seen)), f"{found}\nif this is right, pytest --rewrite-scenarios writes it"


# A checkpoint is a sync as well, so it rescues what the loss of power would take.
@pytest.mark.parametrize("path", [path for path in FILES if "\ncrash" not in path.read_text()], ids=_name)
def test_checkpoints_change_nothing_that_can_be_seen(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not (found := _difference(text, play(text, checkpoint_often=True))), found


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_a_scenario_opens_with_the_promise_it_shows(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    opening = " ".join(lines[: next(at for at, line in enumerate(lines) if not line.startswith("#"))])
    assert opening.startswith("# Promise: ")
    assert any(f"{seed} " in opening for seed in SEEDS), f"name the seed and its section: {', '.join(SEEDS)}"


def test_a_wrong_expectation_is_seen() -> None:
    text = "create q\nenqueue q a\n----\nok\nq#2\n"
    assert play(text) == "create q\nenqueue q a\n----\nok\nq#1\n"


def test_expectations_that_are_missing_are_written() -> None:
    assert play("create q\n\nenqueue q a\n") == "create q\n----\nok\n\nenqueue q a\n----\nq#1\n"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("enqeue q a", "no verb 'enqeue'"),
        ("enqueue q a prority=5", "no option prority"),
        ("ack q#1", "no job 'q#1'"),
        ("advance 30", "is no time"),
        ('append l {"x":1', "not closed"),
        ("create q mode=best", "not a valid Mode"),
    ],
)
def test_a_mistake_in_a_scenario_names_its_line(line: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=f"^line 2: .*{problem}"):
        play(f"# a comment\n{line}\n")

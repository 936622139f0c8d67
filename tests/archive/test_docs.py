"""The page about the archive tells the truth: its examples run, and it knows every column."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from esker.archive.interface import ArchiveStore
from esker.archive.local import LocalArchive
from esker.columns.eventwish import COLUMNS, KINDS
from tests.archive.tiers import Tiers

PAGE = (Path(__file__).parents[2] / "docs" / "archive.md").read_text()


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive: ArchiveStore = LocalArchive(tmp_path / "archive")
    tiers = Tiers(archive)
    tiers.append(1000)
    tiers.settle()
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 3  # the last one prints only what is damaged
    with contextlib.redirect_stdout(printed):
        for example in examples:
            exec(example, {})
    by_duckdb, by_pyarrow = printed.getvalue().splitlines()
    assert by_duckdb == "[('events', 768, 768)]"
    assert by_pyarrow.startswith("b'events' [{'seq': 1, 'data': '\"00000001\"'}, {'seq': 2,")


def test_every_column_is_described() -> None:
    assert [name for name in (*COLUMNS, "ts", "meta", "data") if f"`{name}`" not in PAGE] == []


def test_every_kind_of_event_is_described() -> None:
    assert [kind for kind in KINDS if f"`{kind}`" not in PAGE] == []

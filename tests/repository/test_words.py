"""What no file of the project may say, be called, or grow to.

The patterns are written so that they do not match themselves: one letter stands in brackets.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.repository.sources import ROOT, everything, text_files

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 80
BANNED_MODULE_NAMES = frozenset({"utils", "util", "common", "helpers", "helper", "manager", "base", "misc"})

FORBIDDEN = {
    "a path of somebody's machine": r"(?<![\w.}])/(?:[w]ork|[r]oot|[h]ome)/",
    "a package registry": r"[p]ypi\.org|[p]ythonhosted\.org|[n]pmjs\.org|--(?:extra-)?[i]ndex-url[ =]",
    "unfinished work": r"\b(?:[T]ODO|[F]IXME|[X]XX|[H]ACK)\b",
}
FORBIDDEN_IN_PROSE = {"a temporary path": r"(?<![\w.])/[t]mp\b"}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    assert _found(FORBIDDEN[what], list(text_files())) == []


@pytest.mark.parametrize("what", FORBIDDEN_IN_PROSE)
def test_no_document_holds(what: str) -> None:
    assert _found(FORBIDDEN_IN_PROSE[what], [path for path in text_files() if path.suffix == ".md"]) == []


def test_the_forbidden_words_would_be_found(tmp_path: Path) -> None:
    bad = tmp_path / "bad.md"
    bad.write_text("see /wor" + "k/main\npip install --index" + "-url x\n# TO" + "DO later\n")
    assert [len(_found(pattern, [bad])) for pattern in FORBIDDEN.values()] == [1, 1, 1]


def test_modules_are_named_after_nouns() -> None:
    named = {module.where for module in everything() for part in module.path.relative_to(ROOT).with_suffix("").parts
             if part in BANNED_MODULE_NAMES}  # fmt: skip
    assert named == set()


def test_modules_stay_readable() -> None:
    long = {module.where: module.text.count("\n") for module in everything()}
    assert {where: lines for where, lines in long.items() if lines > MODULE_LINES_MAX} == {}


def test_functions_fit_a_screen() -> None:
    long = {
        f"{module.where}:{node.lineno} {node.name}": lines
        for module in everything()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert long == {}


def _found(pattern: str, paths: list[Path]) -> list[str]:
    seeker = re.compile(pattern)
    return [
        f"{path.name}:{number}: {line.strip()[:80]}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if seeker.search(line)
    ]

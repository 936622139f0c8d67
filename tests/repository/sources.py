"""The repository as data: its modules, what they import, and its text files.

Modules are parsed, never imported, so a test about them can neither run nor break the code it looks at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

# Folders that belong to the project. A walk needs no git, so the tests also run from an unpacked source archive.
FOLDERS = (".ci", "bench", "deploy", "docs", "examples", "proto", "requirements", "src", "tests")
TEXT_SUFFIXES = frozenset({"", ".json", ".md", ".proto", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"})


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file: its dotted name (only for files under src), its place and its tree."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def where(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def layer(self) -> str:
        """`engine` for esker.engine.ids, `errors` for esker.errors, empty for esker itself; other packages are one."""
        parts = self.name.split(".")
        if parts[0] != "esker":
            return parts[0]
        return parts[1] if len(parts) > 1 else ""

    def imports(self) -> Iterator[str]:
        """Every dotted name this module imports, wherever in it the import stands.

        `from a import b` yields `a` and `a.b`: whether b is a module or a name in one is for the caller to look up.
        """
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                yield node.module
                for alias in node.names:
                    yield f"{node.module}.{alias.name}"


@cache
def product() -> Mapping[str, Module]:
    """The modules under src, by dotted name."""
    modules = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = _module(name, path)
    return modules


@cache
def everything() -> tuple[Module, ...]:
    """The Python files of product, tests and benchmarks."""
    others = (path for folder in ("tests", "bench") for path in sorted((ROOT / folder).rglob("*.py")))
    return (*product().values(), *(_module("", path) for path in others))


def text_files() -> Iterator[Path]:
    """Every text file of the project, those at the top included."""
    yield from (path for path in sorted(ROOT.iterdir()) if path.is_file() and _is_text(path))
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and _is_text(path) and "__pycache__" not in path.parts:
                yield path


def _is_text(path: Path) -> bool:
    return path.suffix in TEXT_SUFFIXES


def _module(name: str, path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    return Module(name, path, text, ast.parse(text, filename=str(path)))

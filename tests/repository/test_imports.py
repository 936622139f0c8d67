"""Imports flow one way, the engine is pure, and nothing lies about unused."""

from __future__ import annotations

import ast

from tests.repository.sources import Module, product

# What each layer may import. A new package must be given its place here before anything can import it.
BELOW_NODE = frozenset({"errors", "checksums", "engine", "journal", "store", "columns", "archive"})
MAY_IMPORT = {
    "": frozenset({"errors"}),  # esker/__init__.py runs before every other module, so it stays light
    "errors": frozenset[str](),
    "checksums": frozenset[str](),
    "engine": frozenset({"errors"}),
    "journal": frozenset({"errors", "engine"}),
    "store": frozenset({"errors", "engine"}),
    "columns": frozenset({"errors", "checksums", "engine"}),
    "archive": frozenset({"errors", "checksums", "engine", "columns"}),
    "node": BELOW_NODE,
    "fronts": BELOW_NODE | {"node"},
    "spark": frozenset({"errors", "checksums"}),  # beside the broker, never in it: it runs in Spark's processes
    "cli": BELOW_NODE | {"node", "fronts", "spark"},
    "testing": BELOW_NODE | {"node", "fronts"},
    "pyspark_esker": frozenset({"spark"}),  # a name that Spark looks for, and nothing else
}

# All that the engine needs from outside: containers, types, arithmetic. No loop, clock, disk, socket or thread.
ENGINE_MAY_IMPORT = frozenset(
    {
        "__future__", "abc", "array", "bisect", "collections", "dataclasses", "enum", "functools", "hashlib", "heapq",
        "itertools", "math", "msgspec", "operator", "random", "struct", "types", "typing",
    }
)  # fmt: skip

ENTRY_POINTS = ("esker", "esker.cli.main", "esker.cli.start", "esker.node.eventworker", "pyspark_esker")


def test_imports_flow_one_way() -> None:
    wrong = [
        f"{module.where}: {module.layer} may not import {name}"
        for module in product().values()
        for name in sorted(set(module.imports()))
        if (layer := _layer_of(name)) is not None
        and layer != module.layer
        and layer not in MAY_IMPORT.get(module.layer, frozenset())
    ]
    assert wrong == []


def test_every_package_has_its_place_in_the_flow() -> None:
    layers = {module.layer for module in product().values()}
    assert layers <= MAY_IMPORT.keys(), f"give {sorted(layers - MAY_IMPORT.keys())} a place in MAY_IMPORT"


def test_the_flow_has_no_circle() -> None:
    settled: set[str] = set()
    while ready := {layer for layer, below in MAY_IMPORT.items() if layer not in settled and below <= settled}:
        settled |= ready
    assert settled == MAY_IMPORT.keys()


def test_the_engine_imports_only_what_is_pure() -> None:
    wrong = [
        f"{module.where}: {name}"
        for module in _engine()
        for name in sorted(set(module.imports()))
        if (top := name.partition(".")[0]) != "esker" and top not in ENGINE_MAY_IMPORT
    ]
    assert wrong == []


def test_the_engine_never_makes_its_own_randomness() -> None:
    """A generator is handed in, so `Random` may appear as a type; it may not be built, nor the module's own be used."""
    wrong = []
    for module in _engine():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import) and any(alias.name == "random" for alias in node.names):
                wrong.append(f"{module.where}:{node.lineno}: import random; say `from random import Random`")
            elif isinstance(node, ast.ImportFrom) and node.module == "random":
                wrong += [
                    f"{module.where}:{node.lineno}: {a.name}" for a in node.names if a.name != "Random" or a.asname
                ]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Random":
                wrong.append(f"{module.where}:{node.lineno}: Random(...) is built here")
    assert wrong == []


def test_no_module_is_an_orphan() -> None:
    modules = product()
    missing = [name for name in ENTRY_POINTS if name not in modules]
    assert missing == [], "an entry point is gone"
    reached: set[str] = set()
    waiting = [*ENTRY_POINTS, *(name for name in modules if name.startswith("esker.testing"))]
    while waiting:
        name = waiting.pop()
        if name not in modules or name in reached:
            continue
        reached.add(name)
        waiting.append(name.rpartition(".")[0])  # importing a.b runs a as well
        waiting += modules[name].imports()
    assert sorted(modules.keys() - reached) == []


def _engine() -> list[Module]:
    return [module for module in product().values() if module.layer == "engine"]


def _layer_of(name: str) -> str | None:
    """The layer an imported name belongs to; None when it is not ours, or is the package itself or a name in it."""
    top = ".".join(name.split(".")[:2])
    return product()[top].layer or None if top in product() else None

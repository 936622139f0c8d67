"""A transform's file: what it may say, and that every mistake is told with its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from esker.errors import SettingsError
from esker.spark.pipelines.declared import read_declaration

EXAMPLES = Path(__file__).parents[2] / "examples" / "transforms"

TOML = """
name = "per-minute"
sql = "SELECT * FROM orders"
[sources.orders]
topic = "orders"
schema = "id STRING, at TIMESTAMP"
time = "at"
watermark = "30 seconds"
dedup = ["id"]
[sink]
topic = "counts"
columns = { tag = "id" }
"""

YAML = """
name: per-minute
sql: SELECT * FROM orders
sources:
  orders:
    topic: orders
    schema: id STRING, at TIMESTAMP
    time: at
    watermark: 30 seconds
    dedup: [id]
sink:
  topic: counts
  columns: {tag: id}
"""


def _read(folder: Path, text: str, name: str = "declared.toml") -> object:
    path = folder / name
    path.write_text(text)
    return read_declaration(path)


def test_toml_and_yaml_say_the_same(tmp_path: Path) -> None:
    assert _read(tmp_path, TOML) == _read(tmp_path, YAML, "declared.yaml")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.*ml")), ids=lambda path: path.name)
def test_the_examples_are_declarations(path: Path) -> None:
    assert read_declaration(path).name == path.stem


def test_there_are_examples() -> None:
    assert len(list(EXAMPLES.glob("*.*ml"))) >= 3


@pytest.mark.parametrize(
    ("line", "instead", "told"),
    [
        ('name = "per-minute"', 'name = "per minute"', "name is 'per minute'"),
        ('name = "per-minute"', "", "needs name"),
        ('sql = "SELECT * FROM orders"', "", "either sql or python"),
        ('sql = "SELECT * FROM orders"', 'python = "nowhere"', "FILE.py:FUNCTION"),
        ('sql = "SELECT * FROM orders"', 'python = "nowhere.py:f"', "no file"),
        ('sql = "SELECT * FROM orders"', "sql = 3", "sql is 3"),
        ('topic = "orders"', "", "needs sources.orders.topic"),
        ('topic = "orders"', 'topic = "or ders"', "sources.orders.topic is 'or ders'"),
        ('time = "at"', 'tmie = "at"', "unknown key sources.orders.tmie; did you mean time?"),
        ('watermark = "30 seconds"', "", "sources.orders.dedup needs sources.orders.watermark"),
        ('watermark = "30 seconds"', 'watermark = "soon"', "sources.orders.watermark is 'soon'"),
        ('dedup = ["id"]', 'dedup = "id"', "sources.orders.dedup is 'id'; expected a list"),
        ('dedup = ["id"]', 'malformed = "keep"', "sources.orders.malformed is 'keep'; expected drop or fail"),
        ("[sources.orders]", "[sources.'or-ders']", "sources.or-ders: a source is named as a table"),
        ("[sources.orders]", "[source.orders]", "unknown key source; did you mean sources?"),
        ('topic = "counts"', "", "either sink.topic or sink.columns.topic"),
        ('topic = "counts"', 'topic = "counts"\ntype = "tree"', "sink.type is 'tree'; expected log or queue"),
        ('topic = "counts"', 'topic = "counts"\nmode = "complete"', "sink.mode is 'complete'"),
        ('{ tag = "id" }', '{ tags = "id" }', "unknown key sink.columns.tags; did you mean tag?"),
        ('{ tag = "id" }', '{ priority = "1" }', "sink.columns.priority is for a queue"),
        ('{ tag = "id" }', "3", "sink.columns is not a table"),
        ("[sink]", "[sink", "is not TOML"),
        ('name = "per-minute"', 'name = "a"\npartitions = 0', "partitions is 0"),
    ],
)
def test_a_mistake_is_told_with_its_key(tmp_path: Path, line: str, instead: str, told: str) -> None:
    assert line in TOML
    with pytest.raises(SettingsError) as caught:
        _read(tmp_path, TOML.replace(line, instead))
    assert told in str(caught.value)
    assert "declared.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("declared.yaml", "a: [", "is not YAML"),
        ("declared.yaml", "- 1", "the file is not a table"),
        ("declared.yaml", "!!python/object/apply:os.system ['true']", "is not YAML"),
        ("declared.txt", "", "a .toml or .yaml file"),
        ("declared.toml", "x = 1\n" * 200_000, "bytes"),
    ],
)
def test_what_is_no_declaration_is_refused(tmp_path: Path, name: str, text: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        _read(tmp_path, text, name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"missing\.toml"):
        read_declaration(tmp_path / "missing.toml")

"""A transform as a file declares it: topics in, SQL or a Python function, a topic out.

    name = "orders-per-minute"
    sql = '''
        SELECT window.start AS minute, product, count(*) AS orders
        FROM orders GROUP BY window(event_time, '1 minute'), product
    '''

    [sources.orders]                       # `orders` is the table's name in the SQL
    topic = "orders"                       # a log
    schema = "id STRING, product STRING, at TIMESTAMP"     # of the JSON value; without one the table has `value`
    time = "at"                            # event_time: SQL over these columns; else the record's own time
    watermark = "30 seconds"               # how late data may come
    dedup = ["id"]                         # one row for each, as far back as the watermark
    malformed = "drop"                     # what is not such JSON: left out and counted, or "fail"
    starting = "earliest"                  # where the first run begins, or "latest"

    [sink]
    topic = "orders-per-minute"
    type = "log"                           # or "queue"
    mode = "append"                        # or "update": rows that change are written again
    columns = { tag = "product" }          # SQL over the result; without `value` the row itself, as JSON
    config = { ttl_ms = 86400000 }         # of the topic, when it is made

The same keys in YAML. A table has the columns of its schema, `event_time`, and of the record: `record_offset`,
`record_time`, `record_tag`, `record_node`, `record_meta`. Every mistake is told with the key it is in.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from esker.errors import SettingsError

SINK_COLUMNS: Final = (
    "value", "topic", "tag", "node", "meta", "key", "priority", "delay_ms", "ttl_ms", "retry_ms", "max_deliveries"
)  # fmt: skip
_QUEUE_ONLY: Final = ("priority", "delay_ms", "ttl_ms", "retry_ms", "max_deliveries")
RECORD_COLUMNS: Final = ("record_offset", "record_time", "record_tag", "record_node", "record_meta")
EVENT_TIME: Final = "event_time"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_VIEW: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:\-]{0,254}")
_INTERVAL: Final = re.compile(r"\d+ (millisecond|second|minute|hour|day|week)s?")
_FILE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    topic: str
    schema: str | None
    time: str | None
    watermark: str | None
    dedup: tuple[str, ...]
    fails_on_malformed: bool
    starting: str


@dataclass(frozen=True, slots=True)
class Sink:
    """`topic` None: the column `topic` says it row by row."""

    topic: str | None
    type: str
    updates: bool
    columns: Mapping[str, str]
    config: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Declaration:
    """`sql` or `python` is given, never both. `python`: the file, and the function in it."""

    name: str
    sources: tuple[Source, ...]
    sql: str | None
    python: tuple[Path, str] | None
    sink: Sink
    partitions: int | None


def read_declaration(path: Path) -> Declaration:
    """Raises SettingsError that names the file, the key, and what was expected there."""
    try:
        size = path.stat().st_size
        text = path.read_text(encoding="utf-8") if size <= _FILE_BYTES_MAX else ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"file {path} cannot be read: {error}") from error
    if size > _FILE_BYTES_MAX:
        raise SettingsError(f"file {path} has {size:,} bytes; a declaration has at most {_FILE_BYTES_MAX:,}")
    try:
        return parse_declaration(_parse(path, text), path.parent)
    except _Wrong as wrong:
        raise SettingsError(f"{path}: {wrong}") from None


def parse_declaration(found: object, folder: Path) -> Declaration:
    """`folder`: where the paths in it begin."""
    top = _Keys("", found)
    top.only("name", "sources", "sql", "python", "sink", "partitions")
    name = top.text("name", _NAME, "letters, digits, '.', '_' and '-'")
    sql, python = top.optional("sql"), top.optional("python")
    if (sql is None) == (python is None):
        raise _Wrong("needs either sql or python, and not both")
    named = top.table("sources")
    sources = tuple(_source(each, named.table(each)) for each in named.names())
    if not sources:
        raise _Wrong("sources: at least one is needed, such as [sources.orders]")
    return Declaration(
        name, sources, sql, None if python is None else _function(python, folder), _sink(top.table("sink")),
        top.number("partitions", 1, 10_000),
    )  # fmt: skip


class _Wrong(Exception):
    """Says which key and why; the caller knows which file."""


def _parse(path: Path, text: str) -> object:
    suffix = path.suffix.lower()
    if suffix == ".toml":
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _Wrong(f"is not TOML: {error}") from None
    if suffix in (".yaml", ".yml"):
        import yaml

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise _Wrong(f"is not YAML: {' '.join(str(error).split())}") from None
    raise _Wrong(f"ends with {suffix or 'nothing'!r}; a declaration is a .toml or .yaml file")


def _source(name: str, keys: _Keys) -> Source:
    if _VIEW.fullmatch(name) is None:
        raise _Wrong(f"sources.{name}: a source is named as a table in SQL, with letters, digits and '_'")
    keys.only("topic", "schema", "time", "watermark", "dedup", "malformed", "starting")
    watermark = keys.optional("watermark")
    if watermark is not None and _INTERVAL.fullmatch(watermark.lower()) is None:
        raise _Wrong(f"{keys.path('watermark')} is {watermark!r}; expected such as '30 seconds' or '1 hour'")
    dedup = keys.texts("dedup")
    if dedup and watermark is None:
        raise _Wrong(f"{keys.path('dedup')} needs {keys.path('watermark')}: how far back to remember")
    return Source(
        name,
        keys.text("topic", _TOPIC, "the name of a log"),
        keys.optional("schema"),
        keys.optional("time"),
        watermark,
        dedup,
        keys.choice("malformed", ("drop", "fail"), "drop") == "fail",
        keys.choice("starting", ("earliest", "latest"), "earliest"),
    )


def _sink(keys: _Keys) -> Sink:
    keys.only("topic", "type", "mode", "columns", "config")
    kind = keys.choice("type", ("log", "queue"), "log")
    given = keys.table("columns", needed=False)
    given.only(*SINK_COLUMNS)
    columns = {name: given.text(name) for name in given.names()}
    if kind == "log" and (wrong := [name for name in columns if name in _QUEUE_ONLY]):
        raise _Wrong(f"{given.path(wrong[0])} is for a queue, and {keys.path('type')} is log")
    topic = keys.optional("topic")
    if topic is not None and _TOPIC.fullmatch(topic) is None:
        raise _Wrong(f"{keys.path('topic')} is {topic!r}; expected the name of a topic")
    if (topic is None) == ("topic" not in columns):
        raise _Wrong(f"needs either {keys.path('topic')} or {given.path('topic')}, and not both")
    config = keys.table("config", needed=False)
    return Sink(topic, kind, keys.choice("mode", ("append", "update"), "append") == "update", columns, config.found)


def _function(text: str, folder: Path) -> tuple[Path, str]:
    file, _, name = text.rpartition(":")
    if not file or not name.isidentifier():
        raise _Wrong(f"python is {text!r}; expected FILE.py:FUNCTION")
    path = folder / file
    if not path.is_file():
        raise _Wrong(f"python: there is no file {path}")
    return path, name


class _Keys:
    """A table of the file, with readers that name the key when its value is wrong."""

    def __init__(self, where: str, found: object) -> None:
        if not isinstance(found, Mapping) or not all(isinstance(key, str) for key in found):
            raise _Wrong(f"{where or 'the file'} is not a table of keys and values")
        self._where = where
        self.found: Mapping[str, object] = found

    def path(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def names(self) -> list[str]:
        return list(self.found)

    def only(self, *known: str) -> None:
        for key in self.found:
            if key not in known:
                near = get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise _Wrong(f"unknown key {self.path(key)}; {hint}")

    def optional(self, key: str) -> str | None:
        value = self.found.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise _Wrong(f"{self.path(key)} is {value!r}; expected some text")
        return value.strip()

    def text(self, key: str, form: re.Pattern[str] | None = None, expected: str = "some text") -> str:
        value = self.optional(key)
        if value is None:
            raise _Wrong(f"needs {self.path(key)}")
        if form is not None and form.fullmatch(value) is None:
            raise _Wrong(f"{self.path(key)} is {value!r}; expected {expected}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.found.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
            raise _Wrong(f"{self.path(key)} is {value!r}; expected a list of names")
        return tuple(value)

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        value = self.found.get(key, default)
        if value not in choices:
            raise _Wrong(f"{self.path(key)} is {value!r}; expected {' or '.join(choices)}")
        return str(value)

    def number(self, key: str, low: int, high: int) -> int | None:
        value = self.found.get(key)
        if value is None:
            return None
        if type(value) is not int or not low <= value <= high:
            raise _Wrong(f"{self.path(key)} is {value!r}; expected a whole number from {low} to {high:,}")
        return value

    def table(self, key: str, needed: bool = True) -> _Keys:
        value = self.found.get(key)
        if value is None and needed:
            raise _Wrong(f"needs {self.path(key)}")
        return _Keys(self.path(key), {} if value is None else value)

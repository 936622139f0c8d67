"""The options of `format("esker")`, checked on the driver before anything is asked of the broker.

Spark hands options over as strings under lower-cased names. Here they become typed values, once; an option that does
not exist, does not fit its table or cannot be read is an error that names it as the user would write it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, TypeVar

from esker.spark.errors import EskerSparkError, wrong_option
from esker.spark.offsets import Edge, parse_edge, parse_edge_times

DEFAULT_ENDPOINT: Final = "http://127.0.0.1:4000"
RETRY_MS: Final = 30_000
STATES: Final = ("ready", "delayed", "leased", "withdrawn")
SHARE_MIN, SHARE_MAX = 0.05, 1.0

_CONNECTION = ("endpoint", "apiKey", "retryTimeoutMs")
_ALIASES = {
    "esker.bootstrap.servers": "endpoint",
    "bootstrap.servers": "endpoint",
    "kafka.bootstrap.servers": "endpoint",
    "esker.api.key": "apiKey",
}
_READ = (
    "table", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingTimestamp",
    "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders",
    "priorityMin", "priorityMax", "tagPrefix", "since", "until", "states", "kinds", "direct", "consumer",
)  # fmt: skip
_WRITE = ("topic", "type", "valueFormat", "share", "create", "loadId", "batchId", "publishTimeoutMs")
_TOPIC_CONFIG = "topic."  # topic.ttl_ms and the like: the config of a topic that the sink makes
TOPIC_FIELDS: Final = (  # of such a config, as the broker's HTTP API names them; it ignores all others
    "type", "ttl_ms", "cap_records", "cap_bytes", "discard", "durable", "durability", "priority", "auto_priority",
    "auto_create", "idempotency_window_ms", "dedupe_node", "lease_ms", "claim_jitter_ms", "max_deliveries",
    "dead_letter", "leases_durable",
)  # fmt: skip
# Spark's own, which it passes on to every source and sink.
_OF_SPARK = frozenset({"checkpointlocation", "queryname", "path", "asyncprogresstrackingenabled"})

NAMES: Final = (*_CONNECTION, *_READ, *_WRITE)
_NAMES: Final = {name.lower(): name for name in NAMES}
_TOPIC_NAMES: Final = tuple(_TOPIC_CONFIG + name for name in TOPIC_FIELDS)
_Enum = TypeVar("_Enum", bound=StrEnum)
_LOAD_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Table(StrEnum):
    """What a query reads."""

    RECORDS = "records"
    JOBS = "jobs"
    EVENTS = "events"
    DEADLETTERS = "deadletters"


class Direct(StrEnum):
    """Whether tasks read files of the archive themselves. `auto`: where they can."""

    AUTO = "auto"
    ALWAYS = "true"
    NEVER = "false"


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the broker is, and how long to try. The key is in no representation."""

    endpoints: tuple[str, ...] = (DEFAULT_ENDPOINT,)
    api_key: str | None = field(default=None, repr=False)
    retry_ms: int = RETRY_MS


@dataclass(frozen=True, slots=True)
class Choice:
    """Which topics: names, a pattern, or names with partitions. All None: every topic."""

    names: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None

    def takes(self, topic: str, partition: int) -> bool:
        return self.assigned is None or partition in self.assigned.get(topic, ())


@dataclass(frozen=True, slots=True)
class ReadOptions:
    connection: Connection
    table: Table
    choice: Choice
    starting: Edge | None
    ending: Edge | None
    missing_time_is_latest: bool
    offsets_per_trigger: int | None
    partitions_min: int
    partition_records_max: int | None
    fail_on_data_loss: bool
    include_headers: bool
    priority_min: int | None
    priority_max: int | None
    tag_prefix: str | None
    since_ms: int | None
    until_ms: int | None
    states: tuple[str, ...] | None
    kinds: tuple[str, ...] | None
    direct: Direct
    consumer: str | None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    connection: Connection
    topic: str | None
    type: str | None
    value_format: str | None
    share: float | None
    create: bool
    config: Mapping[str, object] | None
    load: str | None
    batch: int | None
    publish_ms: int


def check_names(options: Mapping[str, str]) -> None:
    """Refuses what is no option at all; whether it is one of a reader or a writer is found out when that is made."""
    for key in options:
        name = key.lower()
        if name in _NAMES or name in _ALIASES or name in _OF_SPARK or name in _TOPIC_NAMES:
            continue
        known = _TOPIC_NAMES if name.startswith(_TOPIC_CONFIG) else [*_NAMES, *_ALIASES]
        near = get_close_matches(name, known, n=3, cutoff=0.6)
        hint = f"; did you mean {' or '.join(_NAMES.get(one, one) for one in near)}?" if near else ""
        raise wrong_option(key, f"there is no such option{hint}")


def read_options(options: Mapping[str, str], streaming: bool | None) -> ReadOptions:
    """Raises EskerSparkError at the first option that is wrong. `streaming` None: it is not known yet."""
    given = _Given(options)
    given.refuse((*_WRITE, _TOPIC_CONFIG), "it is for writing")
    if options.get("path"):
        raise wrong_option("path", 'say which topics with .option("subscribe", "name") and call load() without a path')
    table = given.one_of("table", Table, Table.RECORDS)
    _check_fit(given, table, streaming)
    choice = _choice(given, needed=table is not Table.EVENTS)
    starting = _edge(given, "starting")
    ending = _edge(given, "ending")
    strategy = given.text("startingOffsetsByTimestampStrategy") or "error"
    if strategy not in ("error", "latest"):
        raise wrong_option("startingOffsetsByTimestampStrategy", f"{strategy!r}; it is error or latest")
    if streaming is False and starting is not None and starting.is_latest:
        raise wrong_option("startingOffsets", "a batch cannot start at latest: nothing lies behind it")
    if ending is not None and ending.is_earliest:
        raise wrong_option("endingOffsets", "a batch cannot end at earliest: nothing lies before it")
    states = given.words("states")
    for state in states or ():
        if state not in STATES:
            raise wrong_option("states", f"{state!r}; a state is one of {', '.join(STATES)}")
    return ReadOptions(
        connection=_connection(given),
        table=table,
        choice=choice,
        starting=starting,
        ending=ending,
        missing_time_is_latest=strategy == "latest",
        offsets_per_trigger=given.number("maxOffsetsPerTrigger", least=1),
        partitions_min=given.number("minPartitions", least=1) or 1,
        partition_records_max=given.number("maxRecordsPerPartition", least=1),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        include_headers=given.flag("includeHeaders", False),
        priority_min=given.number("priorityMin"),
        priority_max=given.number("priorityMax"),
        tag_prefix=given.text("tagPrefix"),
        since_ms=given.time("since"),
        until_ms=given.time("until"),
        states=states,
        kinds=given.words("kinds"),
        direct=given.one_of("direct", Direct, Direct.AUTO),
        consumer=_consumer(given),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Raises EskerSparkError at the first option that is wrong."""
    given = _Given(options)
    given.refuse(_READ, "it is for reading")
    kind = given.text("type")
    if kind not in (None, "log", "queue"):
        raise wrong_option("type", f"{kind!r}; it is log or queue")
    value_format = given.text("valueFormat")
    if value_format not in (None, "json", "text"):
        raise wrong_option("valueFormat", f"{value_format!r}; it is json or text")
    share = given.real("share")
    if share is not None and not SHARE_MIN <= share <= SHARE_MAX:
        raise wrong_option("share", f"{share}; it is between {SHARE_MIN} and {SHARE_MAX:g}")
    load = given.text("loadId")
    if load is not None and _LOAD_ID.fullmatch(load) is None:
        raise wrong_option("loadId", f"{load!r}; it has 1 to 128 letters, digits, '.', '_' and '-'")
    batch = given.number("batchId", least=0)
    if batch is not None and load is None:
        raise wrong_option("batchId", "a batch is counted within a load: give loadId, too")
    return WriteOptions(
        connection=_connection(given),
        topic=given.text("topic"),
        type=kind,
        value_format=value_format,
        share=share,
        create=given.flag("create", True),
        config=given.config(),
        load=load,
        batch=batch,
        publish_ms=given.number("publishTimeoutMs", least=1000) or 600_000,
    )


def parse_endpoints(text: str) -> tuple[str, ...]:
    """A comma list of URLs or of host:port."""
    endpoints = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        url = entry if "://" in entry else f"http://{entry}"
        if not re.fullmatch(r"https?://[^/\s:@]+(:\d{1,5})?|https?://\[[0-9a-fA-F:]+\](:\d{1,5})?", url.rstrip("/")):
            raise wrong_option("endpoint", f"{_without_secret(entry)!r} is no http://host:port")
        endpoints.append(url.rstrip("/"))
    if not endpoints:
        raise wrong_option("endpoint", "it is empty; give http://host:port")
    return tuple(endpoints)


def parse_time(name: str, text: str) -> int:
    """Milliseconds since the epoch, or ISO 8601; a time without a zone is UTC."""
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise wrong_option(name, f"{text!r} is neither milliseconds nor a time like 2026-01-31T12:00:00") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _without_secret(entry: str) -> str:
    """A URL may carry a password, which no message may show."""
    return re.sub(r"//[^/@]*@", "//…@", entry)


def _connection(given: _Given) -> Connection:
    endpoint = given.text("endpoint")
    key = given.text("apiKey")
    if key is not None and re.fullmatch(r"[!-~]+", key) is None:
        raise wrong_option("apiKey", "it has a space or a letter that no key has")
    retry_ms = given.number("retryTimeoutMs", least=0)
    return Connection(
        parse_endpoints(endpoint) if endpoint is not None else (DEFAULT_ENDPOINT,),
        key,
        RETRY_MS if retry_ms is None else retry_ms,
    )


def _choice(given: _Given, needed: bool) -> Choice:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if given.has(name)]
    if len(ways) > 1:
        raise EskerSparkError(f"options {' and '.join(ways)}: exactly one of them says which topics")
    if not ways:
        if needed:
            raise wrong_option("subscribe", "say which topics: subscribe, subscribePattern or assign")
        return Choice()
    if ways == ["subscribe"]:
        return Choice(names=tuple(dict.fromkeys(given.words("subscribe") or ())))
    if ways == ["subscribePattern"]:
        pattern = given.text("subscribePattern") or ""
        try:
            re.compile(pattern)
        except re.error as error:
            raise wrong_option("subscribePattern", f"{pattern!r} is no regular expression: {error}") from None
        return Choice(pattern=pattern)
    assigned = _assigned(given.text("assign") or "")
    return Choice(names=tuple(assigned), assigned=assigned)


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise wrong_option("assign", f'{text!r}; it looks like {{"topic":[0,1]}}')
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not numbers or not all(type(n) is int and n >= 0 for n in numbers):
            raise wrong_option("assign", f"topic {topic!r} needs a list of partition numbers")
    return {topic: tuple(sorted(set(numbers))) for topic, numbers in found.items()}


def _edge(given: _Given, side: str) -> Edge | None:
    """Where a range starts or ends. Of several ways to say it, the most exact counts, as for Kafka."""
    timestamp, by_timestamp, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if (time_ms := given.time(timestamp)) is not None:
        return Edge(time_ms=time_ms)
    if (text := given.text(by_timestamp)) is not None:
        return parse_edge_times(by_timestamp, text)
    if (text := given.text(offsets)) is not None:
        return parse_edge(offsets, text)
    return None


def _consumer(given: _Given) -> str | None:
    name = given.text("consumer")
    if name is not None and _LOAD_ID.fullmatch(name) is None:
        raise wrong_option("consumer", f"{name!r}; it has 1 to 128 letters, digits, '.', '_' and '-'")
    return name


# Which tables an option fits, where it does not fit all.
_FITS: Final[dict[str, tuple[Table, ...]]] = {
    "includeHeaders": (Table.RECORDS,),
    "priorityMin": (Table.JOBS,),
    "priorityMax": (Table.JOBS,),
    "states": (Table.JOBS,),
    "kinds": (Table.EVENTS,),
    "tagPrefix": (Table.RECORDS, Table.JOBS, Table.DEADLETTERS),
    "since": (Table.RECORDS, Table.JOBS, Table.DEADLETTERS),
    "until": (Table.RECORDS, Table.JOBS, Table.DEADLETTERS),
    "startingOffsets": (Table.RECORDS, Table.EVENTS),
    "startingTimestamp": (Table.RECORDS,),
    "startingOffsetsByTimestamp": (Table.RECORDS,),
    "endingOffsets": (Table.RECORDS, Table.EVENTS),
    "endingTimestamp": (Table.RECORDS,),
    "endingOffsetsByTimestamp": (Table.RECORDS,),
    "assign": (Table.RECORDS,),
    "maxOffsetsPerTrigger": (Table.RECORDS, Table.EVENTS),
}
_STREAM_ONLY = ("maxOffsetsPerTrigger", "consumer")
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


def _check_fit(given: _Given, table: Table, streaming: bool | None) -> None:
    for name, tables in _FITS.items():
        if given.has(name) and table not in tables:
            raise wrong_option(name, f"the table {table} has no such option; it is for {', '.join(tables)}")
    for name in _BATCH_ONLY:
        if streaming and given.has(name):
            raise wrong_option(name, "a stream has no end; it is for batches")
    if streaming and table not in (Table.RECORDS, Table.EVENTS):
        raise wrong_option("table", f"{table} cannot be streamed: it is a state, not a log; read it as a batch")
    if streaming is False:
        for name in _STREAM_ONLY:
            given.ignore(name)


class _Given:
    """The options as they came, with readers that name the option when its value is wrong."""

    def __init__(self, options: Mapping[str, str]) -> None:
        check_names(options)
        self._values: dict[str, str] = {}
        for key, value in options.items():
            name = _ALIASES.get(key.lower(), _NAMES.get(key.lower(), key.lower()))
            if name in self._values and self._values[name] != value:
                raise wrong_option(key, f"{name} is given twice, with different values")
            self._values[name] = value

    def has(self, name: str) -> bool:
        return name in self._values

    def refuse(self, names: tuple[str, ...], why: str) -> None:
        for name in self._values:
            if name in names or (name.startswith(_TOPIC_CONFIG) and _TOPIC_CONFIG in names):
                raise wrong_option(name, why)

    def ignore(self, name: str) -> None:
        """Kafka's users leave the options of streams on their batches; they mean nothing there."""
        self._values.pop(name, None)

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not value.strip():
            raise wrong_option(name, "it is empty")
        return value.strip()

    def words(self, name: str) -> tuple[str, ...] | None:
        text = self.text(name)
        if text is None:
            return None
        words = tuple(word for part in text.split(",") if (word := part.strip()))
        if not words:
            raise wrong_option(name, "it names nothing")
        return words

    def number(self, name: str, least: int | None = None) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"[+-]?\d{1,18}", text):
            raise wrong_option(name, f"{text!r} is no whole number")
        value = int(text)
        if least is not None and value < least:
            raise wrong_option(name, f"{value}; it is at least {least}")
        return value

    def real(self, name: str) -> float | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return float(text)
        except ValueError:
            raise wrong_option(name, f"{text!r} is no number") from None

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise wrong_option(name, f"{text!r}; it is true or false")
        return text.lower() == "true"

    def time(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        time_ms = parse_time(name, text)
        if time_ms < 0:
            raise wrong_option(name, f"{text!r} lies before 1970")
        return time_ms

    def one_of(self, name: str, kind: type[_Enum], default: _Enum) -> _Enum:
        text = self.text(name)
        if text is None:
            return default
        try:
            return kind(text.lower())
        except ValueError:
            raise wrong_option(name, f"{text!r}; it is one of {', '.join(kind)}") from None

    def config(self) -> dict[str, object] | None:
        """`topic.<field>` options as the config of a topic: JSON where it is, else the text itself."""
        found: dict[str, object] = {}
        for name, text in self._values.items():
            if name.startswith(_TOPIC_CONFIG):
                field_name = name.removeprefix(_TOPIC_CONFIG)
                try:
                    found[field_name] = json.loads(text)
                except ValueError:
                    found[field_name] = text
        return found or None

"""Every setting of a node: one table with type, default, unit and meaning.

A value comes from, in this order: a flag, an `ESKER_*` variable, a key of `esker.toml`, the default. The names are the
same everywhere: `memory_limit` is `--memory-limit`, `ESKER_MEMORY_LIMIT` and `memory_limit = "2gb"`. Unknown names are
refused.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from esker.engine.config import Durability
from esker.errors import SettingsError

_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1024, "m": 1000**2, "mb": 1024**2, "g": 1000**3, "gb": 1024**3}
_SIZE = re.compile(r"(\d+)\s*([a-z]*)", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """As in Redis: 1k is 1000, 1kb is 1024, and so on to gb."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError("expected a size such as 512mb or 2gb")
    return int(match[1]) * _UNITS[match[2].lower()]


def _parse_port(text: str) -> int:
    port = int(text)
    if not -1 <= port <= 65535:
        raise ValueError("expected a port: 0 picks a free one, -1 turns this front off")
    return port


def _parse_absent_front(text: str) -> int:
    if int(text) != -1:
        raise ValueError("this version of Esker has no such front; only -1 (off) is possible")
    return -1


def _parse_positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise ValueError("expected a number above 0")
    return value


def _parse_count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError("expected a number of 0 or more")
    return value


def _parse_switch(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("1", "true", "0", "false", ""):
        raise ValueError("expected 1 or true, 0 or false")
    return word in ("1", "true")


def _parse_durability(text: str) -> Durability:
    return Durability(text.strip().lower())


def memory_default() -> int:
    """Half of the memory this process may use."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit_file = Path("/sys/fs/cgroup/memory.max")
    if limit_file.exists() and (text := limit_file.read_text().strip()).isdigit():
        total = min(total, int(text))
    return total // 2


_Value = TypeVar("_Value")


def _setting(default: _Value, parse: Callable[[str], _Value], unit: str, says: str, live: bool = False) -> _Value:
    """`live`: it can be changed while the node runs."""
    value: _Value = field(default=default, metadata={"parse": parse, "unit": unit, "says": says, "live": live})
    return value


@dataclass(slots=True, kw_only=True)
class Settings:
    data: str = _setting("data", str, "path", "where everything is kept; made when it is missing")
    host: str = _setting(
        "127.0.0.1", str, "address", "what the fronts listen on; beyond loopback a password or API keys are needed"
    )
    resp_port: int = _setting(7711, _parse_port, "port", "the Redis protocol; 0 picks a free port, -1 turns it off")
    http_port: int = _setting(4000, _parse_port, "port", "HTTP; 0 picks a free port, -1 turns it off")
    grpc_port: int = _setting(-1, _parse_absent_front, "port", "gRPC: not in this version, only -1")
    dashboard_port: int = _setting(-1, _parse_absent_front, "port", "the web page: not in this version, only -1")
    port_file: str = _setting("", str, "path", "where to write the bound ports as JSON once the node is ready")
    password: str = _setting("", str, "text", "opens both fronts, without limits; empty: none", live=True)
    api_keys: str = _setting(
        "", str, "keys", "open both fronts, each with its limits: key[:scopes[:prefixes]], comma between; empty: none"
    )
    allowed_origins: str = _setting(
        "", str, "origins", "web pages that may use the HTTP front: https://app.example, comma between; *: all"
    )
    allowed_hosts: str = _setting(
        "", str, "names", "further names under which HTTP clients may reach the node, comma between; *: all"
    )
    allow_insecure_no_auth: bool = _setting(
        False, _parse_switch, "0|1", "listen beyond loopback without a password and without API keys"
    )
    probe_auth: bool = _setting(False, _parse_switch, "0|1", "health and readiness over HTTP need a key too")
    tls_cert: str = _setting("", str, "path", "certificate of the HTTP front (PEM); empty: no TLS")
    tls_key: str = _setting("", str, "path", "private key of the HTTP front (PEM)")
    max_topics: int = _setting(100_000, _parse_count, "topics", "of all fronts together; 0: no cap")
    max_connections: int = _setting(
        10_000,
        _parse_positive,
        "descriptors",
        "of HTTP clients, fewer where the system permits less; HTTP/2 and WebSocket take three each",
    )
    keep_alive_s: int = _setting(300, _parse_count, "s", "idle HTTP connections are closed after this; 0: never")
    max_unsent_bytes: int = _setting(
        128 << 20, parse_bytes, "bytes", "HTTP answers that clients do not take, all together; 0: no cap"
    )
    max_arriving_bytes: int = _setting(
        128 << 20, parse_bytes, "bytes", "HTTP bodies that have not come whole, all together"
    )
    max_routers: int = _setting(10_000, _parse_count, "routers", "that HTTP clients may make; 0: no cap")
    max_watch_sessions: int = _setting(10_000, _parse_count, "sessions", "watches kept for HTTP clients; 0: no cap")
    max_sse_connections: int = _setting(10_000, _parse_count, "streams", "open SSE and WebSocket streams; 0: no cap")
    max_sse_connections_per_key: int = _setting(1000, _parse_count, "streams", "of one API key; 0: no cap")
    max_inflight_per_key: int = _setting(1000, _parse_count, "requests", "of one API key at a time; 0: no cap")
    max_total_bytes: int = _setting(0, parse_bytes, "bytes", "kept in all topics before HTTP writes wait; 0: no cap")
    max_body_bytes: int = _setting(64 << 20, parse_bytes, "bytes", "of one HTTP request")
    min_heartbeat_ms: int = _setting(
        1000, _parse_positive, "ms", "the shortest heartbeat that an HTTP stream may ask for"
    )
    archive: str = _setting("", str, "path or URL", "where old records and retired history go as Parquet; empty: none")
    archive_hot_blocks: int = _setting(
        256, _parse_count, "blocks", "the newest blocks (256 records or 64 KiB) of a log that stay out of the archive"
    )
    archive_after_s: int = _setting(
        3600, _parse_count, "s", "older blocks go to the archive after this long, even if they fill no file"
    )

    max_job_bytes: int = _setting(
        32 << 20, parse_bytes, "bytes", "of one job over the Redis protocol, at most 512mb; large ones hold up others"
    )
    memory_limit: int = _setting(
        0, parse_bytes, "bytes", "memory for topics, jobs and records; 0: half of the machine's", live=True
    )
    hot_payloads: int = _setting(
        256 << 20,
        parse_bytes,
        "bytes",
        "payloads kept in memory; the rest of a deep backlog is read when leased",
        live=True,
    )
    queue_durability: Durability = _setting(
        Durability.FSYNC, _parse_durability, "class", "of a queue made without a config: ephemeral, memory, disk, fsync"
    )
    segment_size: int = _setting(64 << 20, parse_bytes, "bytes", "size of a journal segment")
    sync_interval_ms: int = _setting(100, _parse_positive, "ms", "how soon the disk class is synced")
    checkpoint_interval_s: int = _setting(
        15, _parse_positive, "s", "how often changed state goes to the store", live=True
    )
    checkpoint_after: int = _setting(
        64 << 20, parse_bytes, "bytes", "unsaved payload bytes that ask for a checkpoint sooner", live=True
    )

    clock_jump_max_s: int = _setting(
        86_400,
        _parse_count,
        "s",
        "a wall clock that is further off is not believed: time goes on without it until it is right or this is 0",
        live=True,
    )

    clients_max: int = _setting(10_000, _parse_positive, "clients", "connections of the Redis front", live=True)
    idle_timeout_s: int = _setting(0, _parse_count, "s", "idle connections are closed after this; 0: never", live=True)
    diagnostics: str = _setting("text", str, "text|json", "the form of diagnostics on standard error")

    @property
    def memory_limit_bytes(self) -> int:
        return self.memory_limit or memory_default()

    def set(self, name: str, text: str) -> None:
        """Raises SettingsError that names the setting, the value and what was expected."""
        known = _BY_NAME.get(name)
        if known is None:
            near = get_close_matches(name, _BY_NAME, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(_BY_NAME)}"
            raise SettingsError(f"unknown setting {name!r}{hint}")
        try:
            setattr(self, name, known.metadata["parse"](text))
        except ValueError as error:
            raise SettingsError(f"setting {name} cannot be {text!r}: {error}") from error


_BY_NAME = {setting.name: setting for setting in fields(Settings)}


def is_live(name: str) -> bool:
    return name in _BY_NAME and bool(_BY_NAME[name].metadata["live"])


def table() -> list[tuple[str, str, str, str]]:
    """Name, default, unit and meaning of every setting, for --help and the docs."""
    return [
        (setting.name, str(setting.default), str(setting.metadata["unit"]), str(setting.metadata["says"]))
        for setting in _BY_NAME.values()
    ]


def read_settings(flags: Mapping[str, str], environment: Mapping[str, str], file: Path | None = None) -> Settings:
    """Merges the sources, the strongest last. `file` None: `esker.toml` here, if there is one."""
    settings = Settings()
    path = Path("esker.toml") if file is None else file
    if file is not None or path.exists():
        for name, text in _read_file(path).items():
            settings.set(name, text)
    for name, text in environment.items():
        if name.startswith("ESKER_"):
            settings.set(name.removeprefix("ESKER_").lower(), text)
    for name, text in flags.items():
        settings.set(name, text)
    if settings.diagnostics not in ("text", "json"):
        raise SettingsError(f"setting diagnostics cannot be {settings.diagnostics!r}: expected text or json")
    return settings


def _read_file(path: Path) -> dict[str, str]:
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    return {name: str(value) for name, value in values.items()}

"""TOPIC: making, configuring and removing topics, for users of the Redis protocol.

    TOPIC CREATE name [key value]...      TOPIC CONFIG name [key value]...   (no pairs: shows it)
    TOPIC INFO name                       TOPIC LIST [cursor] [COUNT n]
    TOPIC PURGE name                      TOPIC DELETE name

The keys are the fields of a topic's config; those of the backoff are `backoff.base_ms` and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from esker.engine.commands import ConfigureTopic, CreateTopic, DeleteTopic, Purge, ScanTopics, Stats
from esker.engine.config import Backoff, TopicConfig
from esker.engine.limits import SCAN_STEP_MAX
from esker.engine.replies import Done, Topics, TopicView
from esker.fronts.access import Scope
from esker.fronts.resp import arguments as reading
from esker.fronts.resp import encoding
from esker.fronts.resp.commands.queues import PAUSE_WORDS
from esker.fronts.resp.commands.table import command
from esker.fronts.resp.errors import CommandError, expect, syntax_error
from esker.fronts.resp.permissions import need
from esker.fronts.resp.rules import DELETES, LISTS, MANAGES, READS
from esker.fronts.visible import topics_seen

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection

_BACKOFF = "backoff."
_TYPES = {field.name: field.type for field in msgspec.structs.fields(TopicConfig) if field.name != "backoff"}
_BACKOFF_TYPES = {_BACKOFF + field.name: field.type for field in msgspec.structs.fields(Backoff)}
KEYS = (*_TYPES, *_BACKOFF_TYPES)
_RULES: Final = {
    b"CREATE": MANAGES, b"CONFIG": READS, b"INFO": READS, b"LIST": LISTS, b"PURGE": DELETES, b"DELETE": DELETES,
}  # fmt: skip


def changed(config: TopicConfig, pairs: Sequence[bytes]) -> TopicConfig:
    """`config` with the given keys replaced. Raises `CommandError`, which names the key."""
    if len(pairs) % 2:
        raise CommandError(f"ERR config key '{reading.shown(pairs[-1])}' has no value")
    own: dict[str, object] = {}
    backoff: dict[str, object] = {}
    for name, value in zip(pairs[::2], pairs[1::2], strict=True):
        key = name.decode("latin-1").lower()
        if key in _TYPES:
            own[key] = _value(key, value, _TYPES[key])
        elif key in _BACKOFF_TYPES:
            backoff[key.removeprefix(_BACKOFF)] = _value(key, value, _BACKOFF_TYPES[key])
        else:
            raise CommandError(f"ERR unknown config key '{reading.shown(name)}'; there are {', '.join(KEYS)}")
    if backoff:
        own["backoff"] = msgspec.structs.replace(config.backoff, **backoff)
    return msgspec.structs.replace(config, **own)


def _value(key: str, value: bytes, kind: object) -> object:
    if kind == bytes | None:
        return value or None
    text: str | bool = value.decode("utf-8", "backslashreplace")
    if kind is bool:
        text = {"yes": True, "no": False}.get(str(text).lower(), text)
    try:
        converted: object = msgspec.convert(text, type=kind, strict=False)
    except msgspec.ValidationError as problem:
        raise CommandError(f"ERR config key {key} cannot be '{reading.shown(value)}': {problem}") from None
    return converted


def _settings(config: TopicConfig, proto: int) -> bytes:
    shown = {key: getattr(config, key) for key in _TYPES}
    shown |= {key: getattr(config.backoff, key.removeprefix(_BACKOFF)) for key in _BACKOFF_TYPES}
    return encoding.mapping({key: encoding.bulk(_text(value)) for key, value in shown.items()}, proto)


def _text(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"yes" if value else b"no"
    return b"" if value is None else str(value).encode()


@command(b"TOPIC", -2, "write", "admin", key=2, rule=_RULES)
def topic(client: Connection, arguments: list[bytes]) -> bytes:
    subcommand = _SUBCOMMANDS.get(arguments[1].upper())
    if subcommand is None:
        words = ", ".join(word.decode() for word in _SUBCOMMANDS)
        raise CommandError(f"ERR unknown TOPIC subcommand '{reading.shown(arguments[1])}'; there are {words}")
    run, least, most = subcommand
    if not least <= len(arguments) <= most:
        raise CommandError(f"ERR wrong number of arguments for 'topic|{arguments[1].decode().lower()}' command")
    return run(client, arguments)


def _create(client: Connection, arguments: list[bytes]) -> bytes:
    config = changed(TopicConfig(), arguments[3:])
    _reach_letters(client, config)
    expect(TopicView, client.broker.handle(CreateTopic(arguments[2], config)))
    return encoding.OK


def _reach_letters(client: Connection, config: TopicConfig) -> None:
    if config.dead_letter is not None:
        client.reach(config.dead_letter)


def _config(client: Connection, arguments: list[bytes]) -> bytes:
    view = expect(TopicView, client.broker.handle(Stats(arguments[2])))
    if len(arguments) == 3:
        return _settings(view.config, client.proto)
    need(client, Scope.ADMIN, "topic|config")
    config = changed(view.config, arguments[3:])
    if config.dead_letter != view.config.dead_letter:
        _reach_letters(client, config)
    expect(TopicView, client.broker.handle(ConfigureTopic(arguments[2], config)))
    return encoding.OK


def _info(client: Connection, arguments: list[bytes]) -> bytes:
    view = expect(TopicView, client.broker.handle(Stats(arguments[2])))
    fields = {"name": encoding.bulk(view.name), "pause": encoding.bulk(PAUSE_WORDS[view.pause])}
    for field in msgspec.structs.fields(TopicView):
        if field.name not in fields and field.name != "config":
            fields[field.name] = encoding.integer(int(getattr(view, field.name)))
    fields["blocked"] = encoding.integer(client.broker.blocked_on(view.name))
    return encoding.mapping(fields, client.proto)


def _list(client: Connection, arguments: list[bytes]) -> bytes:
    cursor, count = 0, 100
    options = reading.Options(arguments, 2)
    while (option := options.next()) is not None:
        if option == b"COUNT":
            count = options.integer(1, SCAN_STEP_MAX, f"ERR COUNT must be 1 to {SCAN_STEP_MAX}")
        elif option.isdigit() and len(option) <= 19:
            cursor = int(option)
        else:
            raise syntax_error()
    cursor, seen = scan_seen(client, cursor, count)
    return encoding.array([encoding.bulk(b"%d" % cursor), encoding.bulks([view.name for view in seen])])


def scan_seen(client: Connection, cursor: int, count: int) -> tuple[int, list[TopicView]]:
    """A page of the topics that this client may see, and a cursor, which tells of these alone."""
    if not client.key.prefixes:
        page = expect(Topics, client.broker.handle(ScanTopics(cursor, count)))
        return page.cursor, list(page.topics)
    numbers = numbers_seen(client, cursor)
    views = [expect(TopicView, client.broker.handle(Stats(name))) for _, name in numbers[:count]]
    return numbers[count - 1][0] if len(numbers) > count else 0, views


def numbers_seen(client: Connection, above: int) -> list[tuple[int, bytes]]:
    """The numbers above this one, and the names, of the topics that a client with prefixes may see, in order."""
    topics = topics_seen(client.broker, client.key)
    return sorted((status.number, status.name) for status in topics if status.number > above)


def _delete(client: Connection, arguments: list[bytes]) -> bytes:
    expect(Done, client.broker.handle(DeleteTopic(arguments[2])))
    return encoding.OK


def _purge(client: Connection, arguments: list[bytes]) -> bytes:
    return encoding.integer(expect(Done, client.broker.handle(Purge(arguments[2]))).count)


_MANY = 1 << 20
_SUBCOMMANDS: dict[bytes, tuple[Callable[[Connection, list[bytes]], bytes], int, int]] = {
    b"CREATE": (_create, 3, _MANY),
    b"CONFIG": (_config, 3, _MANY),
    b"INFO": (_info, 3, 3),
    b"LIST": (_list, 2, 5),
    b"PURGE": (_purge, 3, 3),
    b"DELETE": (_delete, 3, 3),
}

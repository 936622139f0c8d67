"""Who may speak: the passwords of the Redis front, and the API keys of the HTTP front.

Without a password, or without keys, everyone may (the node refuses to listen beyond loopback then). With some, any of
them opens the door. Comparison takes the same time for every wrong one, since all are compared, always.

A key is written `secret`, `secret:scopes`, `secret:scopes:prefixes` or `secret::prefixes`, in a comma list: scopes are
joined by `+`, prefixes of topic and router names by `|`. Only the digest of a secret is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntFlag
from hashlib import sha256
from hmac import compare_digest
from typing import Final

import msgspec

from esker.errors import SettingsError

DEFAULT_USER: Final = b"default"


class Access:
    __slots__ = ("_passwords",)

    def __init__(self, passwords: Iterable[bytes] = ()) -> None:
        self._passwords = tuple(password for password in passwords if password)

    @property
    def required(self) -> bool:
        return len(self._passwords) > 0

    @property
    def shown(self) -> str:
        """The password for those who are inside already, as Redis's CONFIG GET shows it."""
        return self._passwords[0].decode("utf-8", "backslashreplace") if self._passwords else ""

    def replace(self, passwords: Iterable[bytes]) -> None:
        """From now on these open the door; connections that are inside stay."""
        self._passwords = tuple(password for password in passwords if password)

    def admits(self, password: bytes, user: bytes = DEFAULT_USER) -> bool:
        matches = [compare_digest(password, known) for known in self._passwords]  # all, so that time tells nothing
        return any(matches) and user == DEFAULT_USER


class Scope(IntFlag):
    """What a key may do. A route names all that it needs."""

    NONE = 0
    READ = 1
    WRITE = 2
    DELETE = 4
    ADMIN = 8


EVERYTHING: Final = Scope.READ | Scope.WRITE | Scope.DELETE | Scope.ADMIN

_SCOPES: Final[dict[str, Scope]] = {
    "read": Scope.READ, "r": Scope.READ,
    "write": Scope.WRITE, "w": Scope.WRITE,
    "delete": Scope.DELETE, "del": Scope.DELETE, "d": Scope.DELETE,
    "admin": Scope.ADMIN, "a": Scope.ADMIN,
    "rw": Scope.READ | Scope.WRITE,
}  # fmt: skip


class Key(msgspec.Struct, frozen=True):
    """A known key. Without prefixes it reaches every name."""

    digest: bytes
    scopes: Scope = EVERYTHING
    prefixes: tuple[bytes, ...] = ()

    def may(self, needed: Scope) -> bool:
        return int.__and__(needed, self.scopes) == needed  # as plain numbers: a flag for the result costs a microsecond

    def reaches(self, name: bytes) -> bool:
        return not self.prefixes or name.startswith(self.prefixes)


ANYONE: Final = Key(b"")  # who speaks when no keys are set


class KeyRing:
    """The API keys of a node."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = tuple(keys)

    @classmethod
    def parse(cls, text: str) -> KeyRing:
        """Reads the comma list. Raises `SettingsError`, which never shows a secret."""
        entries = (entry.strip() for entry in text.split(","))
        return cls(_parse_key(number, entry) for number, entry in enumerate(entries, 1) if entry)

    @property
    def required(self) -> bool:
        return len(self._keys) > 0

    def find(self, secret: bytes) -> Key | None:
        digest = sha256(secret).digest()
        found: Key | None = None
        for key in self._keys:  # all of them, so that time tells nothing
            if compare_digest(digest, key.digest):
                found = key
        return found


def _parse_key(number: int, entry: str) -> Key:
    secret, _, rest = entry.partition(":")
    scope_words, _, prefixes = rest.partition(":")
    if not secret:
        raise SettingsError(f"setting api_keys: entry {number} has no secret before its first ':'")
    scopes = Scope.NONE
    for word in scope_words.split("+") if scope_words.strip() else ():
        scope = _SCOPES.get(word.strip().lower())
        if scope is None:
            raise SettingsError(
                f"setting api_keys: entry {number} has the unknown scope {word.strip()!r}; "
                f"known are {', '.join(_SCOPES)}, joined by '+'"
            )
        scopes |= scope
    return Key(
        sha256(secret.encode("utf-8", "surrogateescape")).digest(),
        scopes or EVERYTHING,
        tuple(prefix.encode("utf-8", "surrogateescape") for prefix in prefixes.split("|") if prefix),
    )

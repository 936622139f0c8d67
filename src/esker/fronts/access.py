"""Who may speak, over whichever front: the password and the API keys of a node are one set of identities.

Without a password and without keys everyone may do everything (the node refuses to listen beyond loopback then). With
any of them, both fronts want one: over HTTP as a bearer, over the Redis protocol with AUTH or HELLO. The password is an
identity without limits. A key has its scopes and prefixes on both fronts.

All secrets are compared, always, by their digests, so the time a comparison takes tells nothing.

A key is written `secret`, `secret:scopes`, `secret:scopes:prefixes` or `secret::prefixes`, in a comma list: scopes are
joined by `+`, prefixes of topic and router names by `|`. Only the digest of a secret is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import IntFlag
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from typing import Final

import msgspec

from esker.errors import SettingsError
from esker.fronts.guesses import Guesses

DEFAULT_USER: Final = b"default"


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

    @property
    def unlimited(self) -> bool:
        """It may do everything with every name."""
        return not self.prefixes and self.scopes == EVERYTHING

    @property
    def namespace(self) -> str:
        """Of names that belong to no topic (loads, consumers): keys with the same prefixes share it, and no others.

        By prefixes and not by secret, so that what was begun with a key goes on when its secret is replaced.
        """
        return _namespace(self.prefixes) if self.prefixes else ""


@lru_cache(1024)
def _namespace(prefixes: tuple[bytes, ...]) -> str:
    parts = b"".join(b"%d:%b" % (len(prefix), prefix) for prefix in sorted(set(prefixes)))
    return sha256(parts).hexdigest()[:NAMESPACE_CHARS]


NAMESPACE_CHARS: Final = 32  # hexadecimal: names of others cannot be met by searching for equal digests
ANYONE: Final = Key(b"")  # who speaks when neither a password nor keys are set


class KeyRing:
    """The identities of a node. Both fronts hold the same one."""

    __slots__ = ("_keys", "_password", "guesses", "required", "shown_password")

    def __init__(self, keys: Iterable[Key] = (), password: str = "") -> None:
        self._keys = tuple(keys)
        self.guesses = Guesses(time.monotonic)
        self.required = False  # whoever speaks must say who it is
        self.set_password(password)

    @classmethod
    def parse(cls, text: str, password: str = "") -> KeyRing:
        """Reads the comma list. Raises `SettingsError`, which never shows a secret."""
        entries = (entry.strip() for entry in text.split(","))
        return cls((_parse_key(number, entry) for number, entry in enumerate(entries, 1) if entry), password)

    def set_password(self, password: str) -> None:
        """From now on this one is known; empty: none. Connections that are logged in stay so."""
        self.shown_password = password  # to those who may do everything, as Redis's CONFIG GET does
        digest = sha256(password.encode("utf-8", "surrogateescape")).digest()
        self._password = (Key(digest),) if password else ()
        self.required = bool(self._keys or self._password)

    def find(self, secret: bytes) -> Key | None:
        digest = sha256(secret).digest()
        found: Key | None = None
        for key in (*self._keys, *self._password):  # all of them, so that time tells nothing
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

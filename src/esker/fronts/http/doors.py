"""Which web pages may use the HTTP front.

A browser sends requests for any page to any address it can reach, this node on its user's machine included. Where no
key is asked for, that is all it takes; so there a request is refused when it shows that another site's page made it:

* `Origin`, or `Sec-Fetch-Site`, tells of a page that is neither served under the request's own host nor listed in
  `allowed_origins`. Pages may always be led to the documents and probes, which tell nothing of what is stored.
* `Host` is a name under which this node is not known: a page that has its own name resolved to this address (DNS
  rebinding) is of the same origin to its browser, and only the name gives it away. An address in place of a name cannot
  be made so, but a node that listens on loopback has no other addresses.

Programs that are not browsers send no Origin, and name the host they connect to. Which names those are depends on where
the node listens; others are listed in `allowed_hosts`:

    loopback    localhost, names below it, loopback addresses, and the setting `host`
    elsewhere   also any address, names without a dot (of containers), names of this machine, and names that the public
                DNS does not have (.local, .internal, .home.arpa, .test). Without keys a node listens there only if it
                was told to (`allow_insecure_no_auth`).

Where keys are asked for, a page cannot know one, so neither is looked at. CORS headers go to `allowed_origins` alone.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from esker.errors import SettingsError
from esker.fronts.http.calls import Answer, Call
from esker.fronts.http.errors import Header, HttpError

_ALL: Final = "*"
_KNOWN_MAX: Final = 1024  # values of Host that were found good, and are remembered
_LOCAL: Final = "localhost"
_UNDELEGATED: Final = (".local", ".internal", ".home.arpa", ".test")
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_OTHERS: Final = frozenset({b"cross-site", b"same-site"})
_METHODS: Final = b"GET, POST, PUT, DELETE"
_EXPOSED: Final = b"esker-epoch, esker-to, esker-next, esker-head, esker-gaps, esker-from, retry-after"
_PREFLIGHT_S: Final = b"600"


class Doors:
    def __init__(self, allowed_origins: str = "", allowed_hosts: str = "") -> None:
        """Raises SettingsError."""
        self._origins = frozenset(map(_origin, _listed(allowed_origins)))
        self._hosts = frozenset(name.lower().rstrip(".") for name in _listed(allowed_hosts))
        self._own: frozenset[str] = frozenset()
        self._wide = False  # it listens beyond loopback
        self._known: set[bytes] = set()

    def listens(self, host: str, addresses: Iterable[str]) -> None:
        """Where the node is to be found."""
        own = {host.lower().rstrip("."), *addresses}
        self._wide = not all(_is_loopback(address) for address in addresses)
        if self._wide:
            own |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        self._own = frozenset(own - {""})
        self._known.clear()

    def check(self, call: Call, harmless: bool) -> None:
        """Raises 403 when another site's page made a request. `harmless`: any page may make it."""
        host = call.header(b"host")
        if host is not None and host not in self._known:
            if not self._is_ours(host):
                shown = host[:100].decode("latin-1")
                raise HttpError(
                    403, "host_not_allowed",
                    f"this node is not known as {shown!r}; if it is, add the name to the setting allowed_hosts, or set "
                    "api_keys",
                )  # fmt: skip
            if len(self._known) < _KNOWN_MAX:
                self._known.add(host)
        if harmless or call.allowed_origin is not None:
            return
        origin = call.header(b"origin")
        if origin is not None:
            if not _same(origin, host):
                raise _other_site(origin[:100].decode("latin-1"))
        elif call.header(b"sec-fetch-site") in _OTHERS:
            raise _other_site("another site")

    def allows(self, origin: bytes) -> bool:
        return _ALL in self._origins or origin.decode("latin-1").lower() in self._origins

    def _is_ours(self, host: bytes) -> bool:
        name = _without_port(host.decode("latin-1").lower()).rstrip(".")
        if _ALL in self._hosts or name in self._hosts or name in self._own or not name:
            return True
        if name == _LOCAL or name.endswith("." + _LOCAL):
            return True
        address = _address(name)
        if address is not None:
            return self._wide or _is_loopback(name)
        return self._wide and ("." not in name or name.endswith(_UNDELEGATED))


def is_preflight(call: Call) -> bool:
    return call.scope.get("method") == "OPTIONS" and call.header(b"access-control-request-method") is not None


async def answer_preflight(call: Call) -> Answer:
    """A browser asks whether a page may make a request."""
    if call.allowed_origin is None:
        raise _other_site((call.header(b"origin") or b"null")[:100].decode("latin-1"))
    headers: list[Header] = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-max-age", _PREFLIGHT_S),
    ]
    wanted = call.header(b"access-control-request-headers")
    if wanted is not None:
        headers.append((b"access-control-allow-headers", wanted))
    if call.header(b"access-control-request-private-network") == b"true":
        headers.append((b"access-control-allow-private-network", b"true"))
    return Answer(b"", headers=tuple(headers), media=b"text/plain")


def cors_headers(origin: bytes) -> tuple[Header, ...]:
    """For a page that may read the answer."""
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    )


def _other_site(who: str) -> HttpError:
    return HttpError(
        403,
        "origin_not_allowed",
        f"a page of {who} may not use this node; the setting allowed_origins lists those that may",
    )


def _listed(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _origin(text: str) -> str:
    """As browsers write it. Raises SettingsError."""
    if text == _ALL:
        return text
    scheme, found, rest = text.lower().partition("://")
    if not found or not rest or "/" in rest.rstrip("/"):
        raise SettingsError(f"setting allowed_origins: {text!r} is no origin; expected https://app.example or *")
    rest = rest.rstrip("/")
    return f"{scheme}://{rest.removesuffix(':' + _DEFAULT_PORTS.get(scheme, ' '))}"


def _same(origin: bytes, host: bytes | None) -> bool:
    """Whether a page's origin is the host that it asks."""
    scheme, _, place = origin.decode("latin-1").lower().partition("://")
    asked = (host or b"").decode("latin-1").lower()
    default = ":" + _DEFAULT_PORTS.get(scheme, " ")
    return bool(place) and place.removesuffix(default) == asked.removesuffix(default)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name.partition("%")[0])
    except ValueError:
        return None


def _is_loopback(name: str) -> bool:
    found = _address(name)
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped.is_loopback
    return found is not None and found.is_loopback

"""Where a front listens: the sockets of a host and a port."""

from __future__ import annotations

import asyncio
import errno
import socket


async def listen(host: str, port: int, backlog: int) -> list[socket.socket]:
    """One socket for each address of `host`, bound, listening, not blocking. Port 0 picks one that is free.

    Raises OSError when none can be had; an address that this machine does not have is passed over.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or "127.0.0.1", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listening: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            place = (address[0], listening[0].getsockname()[1], *address[2:]) if listening else address
            try:
                listening.append(_listen(family, kind, protocol, place, backlog))
            except OSError as error:
                absent = error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
                if not absent or (not listening and len(found) == 1):
                    raise
    except OSError:
        for each in listening:
            each.close()
        raise
    if not listening:
        raise OSError(errno.EADDRNOTAVAIL, f"this machine has no address of {host}")
    return listening


def _listen(family: int, kind: int, protocol: int, address: tuple[object, ...], backlog: int) -> socket.socket:
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
        listening.bind(address)
        listening.listen(backlog)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening

"""What a connection wants of its socket: how to name its ends, and how TCP should treat it."""

from __future__ import annotations

import socket


def address(name: object) -> str:
    """`host:port` of a socket's end, as CLIENT LIST shows it."""
    if isinstance(name, tuple) and len(name) >= 2:
        return f"[{name[0]}]:{name[1]}" if ":" in str(name[0]) else f"{name[0]}:{name[1]}"
    return f"{name or 'unix'}:0"


def tune(tcp: object, keepalive_s: int) -> None:
    """Replies are small and waited for, so they go at once; a peer that vanished is noticed in the end."""
    if not isinstance(tcp, socket.socket) and not hasattr(tcp, "setsockopt"):
        return
    if getattr(tcp, "family", None) in (socket.AF_INET, socket.AF_INET6):
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if keepalive_s > 0:
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, keepalive_s)

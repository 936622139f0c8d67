"""What the HTTP front can be told. A cap of 0 is no cap."""

from __future__ import annotations

from dataclasses import dataclass

from esker.node.settings import Settings

MIB = 1024 * 1024


@dataclass(slots=True)
class HttpOptions:
    allowed_origins: str = ""  # of web pages that may use this front, with commas
    allowed_hosts: str = ""  # further names of the node
    probe_auth: bool = False  # health and readiness need a key too
    max_topics: int = 100_000
    max_routers: int = 10_000
    max_watch_sessions: int = 10_000
    max_sse_connections: int = 10_000  # SSE streams and WebSockets together
    max_sse_connections_per_key: int = 1000
    max_inflight_per_key: int = 1000
    max_total_bytes: int = 0
    max_body_bytes: int = 64 * MIB
    min_heartbeat_ms: int = 1000  # of streams
    tls_cert: str = ""
    tls_key: str = ""

    max_connections: int = 10_000  # descriptors: an HTTP/2 connection or a WebSocket takes three
    max_unsent_bytes: int = 128 * MIB  # of answers that clients do not take, over all connections
    max_arriving_bytes: int = 128 * MIB  # of bodies that are not whole, over all connections
    keep_alive_s: float = 300  # an idle connection is closed after this

    accept_backlog: int = 1024
    header_read_timeout_ms: int = 60_000
    body_read_timeout_ms: int = 30_000  # in each such time a body ends, or brings …
    body_bytes_min: int = 16 * 1024
    stall_ms: int = 30_000  # a client that takes nothing for this long is cut
    drain_s: float = 10.0  # how long an orderly end waits for requests under way

    @classmethod
    def of(cls, settings: Settings) -> HttpOptions:
        return cls(
            allowed_origins=settings.allowed_origins,
            allowed_hosts=settings.allowed_hosts,
            probe_auth=settings.probe_auth,
            max_topics=settings.max_topics,
            max_routers=settings.max_routers,
            max_watch_sessions=settings.max_watch_sessions,
            max_sse_connections=settings.max_sse_connections,
            max_sse_connections_per_key=settings.max_sse_connections_per_key,
            max_inflight_per_key=settings.max_inflight_per_key,
            max_total_bytes=settings.max_total_bytes,
            max_body_bytes=settings.max_body_bytes,
            max_connections=settings.max_connections,
            max_unsent_bytes=settings.max_unsent_bytes,
            max_arriving_bytes=max(settings.max_arriving_bytes, settings.max_body_bytes),
            keep_alive_s=settings.keep_alive_s,
            min_heartbeat_ms=settings.min_heartbeat_ms,
            tls_cert=settings.tls_cert,
            tls_key=settings.tls_key,
        )

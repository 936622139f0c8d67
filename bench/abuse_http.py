"""What clients of the HTTP front can do to others: each abuser beside two well-behaved clients.

    python -m bench.abuse_http [--seconds 6] [--only idle,websocket_pings] [--memory-limit 256mb]

Method: a fresh node for each abuser, a log with 16 MB in it. The abuser runs in a process of its own. Meanwhile one
client sends PING over the Redis protocol and another GET /healthz, each on a kept connection, one every 5 ms; a wait
counts for every request that was due in it. The resident memory of the node is read every 50 ms. Then both clients
must get answers on new connections. `alone` is the same without an abuser: what the machine itself does.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import multiprocessing
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from rich.console import Console

HOST: Final = "127.0.0.1"
EVERY_S: Final = 0.005
IDLE: Final = 20_400
DIFF: Final = json.dumps({"from_seq": 0, "limit": 1000, "max_batch_bytes": 8 << 20}).encode()
HEAD: Final = b"Host: localhost\r\nContent-Type: application/json\r\n"
PING: Final = b"*1\r\n$4\r\nPING\r\n"
HEALTH: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

Abuse = Callable[[int, float], None]  # port, when it ends


# -- abusers


def alone(port: int, until: float) -> None:
    time.sleep(max(0.0, until - time.time()))


def websocket_pings(port: int, until: float) -> None:
    """Pings, whose answers are never read."""
    ping = b"\x89\xfd\0\0\0\0" + b"x" * 125
    _send_all([_websocket(port) for _ in range(4)], ping * 2000, until)


def websocket_fragments(port: int, until: float) -> None:
    """Messages of 60 MB that do not end."""
    first = b"\x01\xff" + (1 << 20).to_bytes(8, "big") + b"\0\0\0\0" + b"x" * (1 << 20)
    more = b"\x00" + first[1:]
    sockets = [_websocket(port) for _ in range(20)]
    for number in range(60):
        for each in sockets:
            _try_send(each, more if number else first)
    alone(port, until)


def websocket_large(port: int, until: float) -> None:
    """A message of 100 MB, again and again."""
    frame = b"\x81\xff" + (100 << 20).to_bytes(8, "big") + b"\0\0\0\0"
    while time.time() < until:
        with contextlib.closing(_websocket(port)) as opened:
            _try_send(opened, frame)
            for _ in range(100):
                if not _try_send(opened, b"x" * (1 << 20)):
                    break


def websocket_subscriptions(port: int, until: float) -> None:
    """10,000 subscriptions on one connection, of which most are refused; their answers are not read."""
    opened = _websocket(port)
    messages = b"".join(
        _text(json.dumps({"op": "subscribe", "topic": "log" if at % 2 else f"no.{at}"})) for at in range(10_000)
    )
    _send_all([opened], messages, until)


def http2_zero_window(port: int, until: float) -> None:
    """200 large diffs on each of three connections that never give a window."""
    sockets = []
    for _ in range(3):
        opened, wire = _http2(port, window=0)
        sockets.append(opened)
        opened.settimeout(0.2)
        for at in range(200):
            if at and at % 100 == 0:
                _read(opened, wire)
            with contextlib.suppress(h2.exceptions.TooManyStreamsError):
                _ask(wire, "/v0/topics/log/diff", DIFF)
        _try_send(opened, wire.data_to_send())
    while time.time() < until:
        for opened in sockets:
            _drain(opened)


def http2_pings(port: int, until: float) -> None:
    opened, _ = _http2(port, window=0)
    threading.Thread(target=_drain_until, args=(opened, until), daemon=True).start()
    _send_all([opened], (b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + b"12345678") * 10_000, until)


def http2_resets(port: int, until: float) -> None:
    """Asks and takes it back at once."""
    while time.time() < until:
        opened, wire = _http2(port, window=0)
        threading.Thread(target=_drain_until, args=(opened, until), daemon=True).start()
        for _ in range(5000):
            stream = wire.get_next_available_stream_id()
            wire.send_headers(stream, [(":method", "GET"), *_target("/v0/topics/log")], end_stream=True)
            wire.reset_stream(stream)
            if not _try_send(opened, wire.data_to_send()) or time.time() > until:
                break
        opened.close()


def unread_answers(port: int, until: float) -> None:
    """200 connections that ask for a large diff, and read nothing."""
    request = b"POST /v0/topics/log/diff HTTP/1.1\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % len(DIFF) + DIFF
    sockets = [_connect(port, small=True) for _ in range(200)]
    for each in sockets:
        _try_send(each, request * 3)
    alone(port, until)


def unread_watches(port: int, until: float) -> None:
    """200 event streams over a long log, never read."""
    asked = http.client.HTTPConnection(HOST, port)
    body = json.dumps({"topics": {"log": {"from_seq": 0}}, "max_batch_bytes": 8 << 20, "limit": 1000})
    asked.request("POST", "/v0/watch", body, {"content-type": "application/json"})
    wid = json.loads(asked.getresponse().read())["wid"]
    sockets = [_connect(port, small=True) for _ in range(200)]
    for each in sockets:
        _try_send(
            each, f"GET /v0/watch/{wid} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
    alone(port, until)


def large_diffs(port: int, until: float) -> None:
    """Eight connections that read 8 MB pages as fast as they can."""
    request = b"POST /v0/topics/log/diff HTTP/1.1\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % len(DIFF) + DIFF

    def ask() -> None:
        opened = _connect(port)
        while time.time() < until and _try_send(opened, request):
            _drain(opened, 0.02)

    _threads(8, ask)


def idle(port: int, until: float) -> None:
    """20,400 connections that say nothing, from two processes: one may not have as many."""
    with multiprocessing.Pool(2) as pool:
        pool.starmap(_idle, [(port, until, IDLE // 2)] * 2)


def _idle(port: int, until: float, count: int) -> None:
    _raise_files()
    kept = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            kept.append(_connect(port))
        if time.time() > until:
            break
    alone(port, until)


def slow_heads(port: int, until: float) -> None:
    """1000 heads that come a byte at a time."""
    sockets = [_connect(port) for _ in range(1000)]
    for each in sockets:
        _try_send(each, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: ")
    while time.time() < until:
        for each in sockets:
            _try_send(each, b"a")
        time.sleep(0.5)


def slow_bodies(port: int, until: float) -> None:
    """20 bodies of 63 MB that stop before their end."""
    head = b"POST /v0/topics/log HTTP/1.1\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % (63 << 20)
    sockets = [_connect(port) for _ in range(20)]
    for each in sockets:
        _try_send(each, head)
    for _ in range(62):
        for each in sockets:
            _try_send(each, b"x" * (1 << 20))
    while time.time() < until:
        for each in sockets:
            _try_send(each, b"x")
        time.sleep(0.2)


def large_bodies(port: int, until: float) -> None:
    """Writes of 32 MB, which are refused only when they have been decoded."""
    record = b'{"data":"%b"}' % (b"x" * 1000)
    body = b'{"records":[' + b",".join([record] * 32_000) + b'],"node":7}'
    head = b"POST /v0/topics/log HTTP/1.1\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    opened = _connect(port)
    while time.time() < until and _try_send(opened, head + body):
        _drain(opened, 0.2)


def pipelined(port: int, until: float) -> None:
    """Small requests without pause, on four connections, whose answers are not read."""
    _send_all([_connect(port) for _ in range(4)], HEALTH * 20_000, until)


def small_chunks(port: int, until: float) -> None:
    """Bodies in chunks of one byte."""
    head = b"POST /v0/topics/log HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    _again(port, until, head, b"1\r\nx\r\n" * 50_000)


def chunk_extensions(port: int, until: float) -> None:
    head = b"POST /v0/topics/log HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    _again(port, until, head, b"1;" + b"x" * (1 << 20))


def many_headers(port: int, until: float) -> None:
    _again(port, until, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"a:\r\n" * 250_000)


def long_urls(port: int, until: float) -> None:
    _again(port, until, b"GET /", b"a" * (1 << 20))


ABUSERS: Final[dict[str, Abuse]] = {
    each.__name__: each
    for each in (
        alone, websocket_pings, websocket_fragments, websocket_large, websocket_subscriptions, http2_zero_window,
        http2_pings, http2_resets, unread_answers, unread_watches, large_diffs, idle, slow_heads, slow_bodies,
        large_bodies, pipelined, small_chunks, chunk_extensions, many_headers, long_urls,
    )
}  # fmt: skip


# -- what they share


def _connect(port: int, small: bool = False) -> socket.socket:
    """`small`: the kernel shall not take in what is not read."""
    opened = socket.socket()
    if small:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.settimeout(5)
    opened.connect((HOST, port))
    return opened


def _websocket(port: int) -> socket.socket:
    opened = _connect(port)
    key = base64.b64encode(os.urandom(16))
    opened.sendall(
        b"GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n" % key
    )
    opened.recv(4096)
    return opened


def _text(message: str) -> bytes:
    return b"\x81" + bytes((0x80 | len(message),)) + b"\0\0\0\0" + message.encode()


def _http2(port: int, window: int) -> tuple[socket.socket, h2.connection.H2Connection]:
    opened = _connect(port)
    wire = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    wire.initiate_connection()
    wire.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
    opened.sendall(wire.data_to_send())
    return opened, wire


def _ask(wire: h2.connection.H2Connection, path: str, body: bytes) -> int:
    stream: int = wire.get_next_available_stream_id()
    wire.send_headers(stream, [(":method", "POST"), *_target(path), ("content-type", "application/json")])
    wire.send_data(stream, body, end_stream=True)
    return stream


def _target(path: str) -> list[tuple[str, str]]:
    return [(":path", path), (":scheme", "http"), (":authority", "localhost")]


def _read(opened: socket.socket, wire: h2.connection.H2Connection) -> None:
    _try_send(opened, wire.data_to_send())
    with contextlib.suppress(OSError):
        wire.receive_data(opened.recv(1 << 16))


def _try_send(opened: socket.socket, data: bytes) -> bool:
    try:
        opened.sendall(data)
    except OSError:
        return False
    return True


def _drain(opened: socket.socket, wait_s: float = 0.05) -> None:
    opened.settimeout(wait_s)
    with contextlib.suppress(OSError):
        while opened.recv(1 << 20):
            continue
    opened.settimeout(5)


def _drain_until(opened: socket.socket, until: float) -> None:
    with contextlib.suppress(OSError):
        while time.time() < until and opened.recv(1 << 16):
            continue


def _send_all(sockets: list[socket.socket], data: bytes, until: float) -> None:
    """On each, as long as it takes anything."""

    def send(opened: socket.socket) -> None:
        opened.settimeout(max(0.1, until - time.time()))
        while time.time() < until and _try_send(opened, data):
            continue

    _threads(len(sockets), lambda: send(sockets.pop()))
    alone(0, until)


def _again(port: int, until: float, head: bytes, data: bytes) -> None:
    """A request that goes on for ever, and anew when it was cut; on two connections."""

    def send() -> None:
        while time.time() < until:
            with contextlib.closing(_connect(port)) as opened:
                if _try_send(opened, head):
                    while time.time() < until and _try_send(opened, data):
                        continue

    _threads(2, send)


def _threads(count: int, run: Callable[[], None]) -> None:
    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _raise_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# -- the node and its other clients


@contextlib.contextmanager
def _node(folder: Path, memory_limit: str) -> Iterator[dict[str, int]]:
    ports = folder / "ports"
    command: list[str | Path] = [
        Path(sys.executable).with_name("esker"),
        "serve",
        "--data",
        folder / "data",
        "--port-file",
        ports,
    ]
    command += ["--resp-port", "0", "--http-port", "0", "--set", f"memory_limit={memory_limit}"]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            while not ports.exists():
                if process.poll() is not None:
                    raise SystemExit((folder / "log").read_text())
                time.sleep(0.05)
            yield json.loads(ports.read_text())
        finally:
            process.terminate()


def _fill(port: int) -> None:
    client = http.client.HTTPConnection(HOST, port)
    records = json.dumps({"records": [{"data": "x" * 16_000}] * 100})
    for _ in range(10):
        client.request("POST", "/v0/topics/log", records, {"content-type": "application/json"})
        client.getresponse().read()
    client.close()


def _probe(port: int, request: bytes, until: float, waits: list[float]) -> None:
    with _connect(port) as opened:
        opened.settimeout(60)
        due = time.perf_counter()
        while time.time() < until:
            opened.sendall(request)
            if not opened.recv(4096):
                raise SystemExit("a well-behaved client was cut")
            now = time.perf_counter()
            while due < now:
                waits.append(now - due)
                due += EVERY_S
            time.sleep(max(0.0, due - now))


def _resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def _p99_ms(waits: list[float]) -> float:
    return sorted(waits)[int(len(waits) * 0.99)] * 1000


def run(name: str, seconds: float, memory_limit: str) -> str:
    """One line of the table."""
    with tempfile.TemporaryDirectory(prefix="abuse-") as folder, _node(Path(folder), memory_limit) as node:
        _fill(node["http"])
        before = peak = _resident_mb(node["pid"])
        until = time.time() + seconds
        waits: tuple[list[float], list[float]] = ([], [])
        probes = [
            threading.Thread(target=_probe, args=(node["resp"], PING, until, waits[0])),
            threading.Thread(target=_probe, args=(node["http"], HEALTH, until, waits[1])),
        ]
        for probe in probes:
            probe.start()
        abuser = multiprocessing.get_context("fork").Process(target=ABUSERS[name], args=(node["http"], until - 1))
        abuser.start()
        while any(probe.is_alive() for probe in probes):
            peak = max(peak, _resident_mb(node["pid"]))
            time.sleep(0.05)
        served = _serves(node["resp"], PING) and _serves(node["http"], HEALTH)
        abuser.terminate()
        abuser.join()
        ping, health = (f"{_p99_ms(each):8.1f} {max(each) * 1000:8.1f}" for each in waits)
    return f"{name:26} {ping}   {health}   {before:8.0f} {peak:8.0f}{'' if served else '  new clients are not served'}"


def _serves(port: int, request: bytes) -> bool:
    """A new client, within 5 s."""
    try:
        with _connect(port) as opened:
            opened.sendall(request)
            return opened.recv(4096).startswith((b"+PONG", b"HTTP/1.1 200"))
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--only", default=",".join(ABUSERS))
    parser.add_argument("--memory-limit", default="256mb")
    options = parser.parse_args()
    _raise_files()
    say = Console(width=200, highlight=False).print
    say(f"{'':26} {'PING p99':>8} {'max':>8}   {'GET p99':>8} {'max':>8}   {'MB before':>9} {'peak':>7}")
    for name in options.only.split(","):
        say(run(name, options.seconds, options.memory_limit))


if __name__ == "__main__":
    main()

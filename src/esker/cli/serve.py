"""`esker serve`: runs a node until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import resource
import signal
import socket
import sys
import tempfile
from ctypes import CDLL
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import structlog
import typer
import uvloop
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from esker import __version__
from esker.cli.start import end_quietly_on_interrupt
from esker.engine import limits
from esker.errors import DataDirectoryError, EskerError, JournalCorrupt, SettingsError
from esker.fronts.access import KeyRing
from esker.fronts.http.options import HttpOptions
from esker.fronts.http.server import HttpServer
from esker.fronts.resp.options import RespOptions
from esker.fronts.resp.server import RespServer
from esker.node import diagnostics
from esker.node.leanarrow import keep_arrow_lean
from esker.node.runtime import Node
from esker.node.settings import Settings, read_settings

# The loop gives way to the journal's thread at least this often. Python's default of 5 ms would be added to an fsync
# of 0.1 ms.
_SWITCH_INTERVAL_S = 0.0001

_COLLECT_EVERY = (20_000, 50, 100)  # objects; collections of the generation before

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h
_BUFFER_BYTES = 32 << 20  # the most that glibc accepts

_FILES_MAX = 512  # descriptors that are not clients: journal, store, standard streams
_BURST_MAX = 1024  # clients that were accepted in one turn of the loop, and are about to be refused

_REDIS_CLI_REACHES = frozenset({"127.0.0.1", "localhost", "0.0.0.0"})  # hosts that it finds without -h

_diagnostics = structlog.get_logger("esker.serve")


def serve(
    data: Annotated[
        str | None, typer.Option(help="Data directory; made when it is missing.", show_default="data")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    resp_port: Annotated[
        int | None, typer.Option(min=-1, max=65535, help="Redis protocol; 0 picks one, -1 is off.", show_default="7711")
    ] = None,
    http_port: Annotated[
        int | None, typer.Option(min=-1, max=65535, help="HTTP; 0 picks one, -1 is off.", show_default="4000")
    ] = None,
    grpc_port: Annotated[int | None, typer.Option(help="gRPC; not in this version.", show_default="-1")] = None,
    dashboard_port: Annotated[
        int | None, typer.Option(help="Web page; not in this version.", show_default="-1")
    ] = None,
    archive: Annotated[
        str | None, typer.Option(help="Folder or URL for old records and history, as Parquet.", show_default="none")
    ] = None,
    port_file: Annotated[str | None, typer.Option(help="Write the bound ports here, as JSON, when ready.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings file.", show_default="esker.toml, if there is one")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting; see `esker settings`.")
    ] = None,
) -> None:
    """Run a node: one process with its journal, its store and its fronts."""
    end_quietly_on_interrupt()  # until the node listens to signals
    named = {
        "data": data, "host": host, "resp_port": resp_port, "http_port": http_port, "grpc_port": grpc_port,
        "dashboard_port": dashboard_port, "port_file": port_file, "archive": archive,
    }  # fmt: skip
    try:
        flags = {name: str(value) for name, value in named.items() if value is not None}
        for pair in set_ or []:
            name, found, value = pair.partition("=")
            if not found:
                raise SettingsError(f"--set {pair}: expected NAME=VALUE")
            flags[name] = value
        settings = read_settings(flags, os.environ, config)
        keys = KeyRing.parse(settings.api_keys, settings.password)
        settings.api_keys = ""  # from here on only digests are kept
        _check_exposure(settings, keys)
        diagnostics.configure(settings.diagnostics)
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        keep_arrow_lean()
        code = uvloop.run(_run(settings, keys))
    except (SettingsError, DataDirectoryError, JournalCorrupt) as error:
        typer.echo(f"esker: {error}", err=True)
        raise typer.Exit(2) from error
    except EskerError as error:
        typer.echo(f"esker: {error}", err=True)
        raise typer.Exit(1) from error
    raise typer.Exit(code)


def _check_exposure(settings: Settings, keys: KeyRing) -> None:
    """Beyond this machine, nobody gets in without a password or a key. Either is known to both fronts."""
    if keys.required or settings.allow_insecure_no_auth or _is_loopback(settings.host):
        return
    raise SettingsError(
        f"host {settings.host} is reachable from outside and neither api_keys nor a password are set; "
        "set some (ESKER_API_KEYS=… or ESKER_PASSWORD=…), listen on 127.0.0.1, or say allow_insecure_no_auth=1"
    )


def _is_loopback(host: str) -> bool:
    """Only if every address it stands for is. Raises SettingsError when it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _unusable(host, error) from error
    return bool(found) and all(ip_address(address[0]).is_loopback for *_, address in found)


def _allow_connections(settings: Settings) -> None:
    """A descriptor per client, and a reserve for files, which clients can not use up: a node that cannot open its next
    segment stops. Asks the system for all that it permits. Where that is less than asked for, HTTP gets what the Redis
    front leaves, but at least a third."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.clients_max + settings.max_connections + _FILES_MAX + _BURST_MAX
    possible = wanted if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < possible:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    clients = max(2, possible - min(_FILES_MAX + _BURST_MAX, possible // 2))
    left = max(clients - settings.clients_max, clients // 3)
    settings.max_connections = min(settings.max_connections, left)
    if settings.clients_max > clients - settings.max_connections:
        settings.clients_max = clients - settings.max_connections
        _diagnostics.warning(
            "fewer clients",
            clients_max=settings.clients_max,
            max_connections=settings.max_connections,
            why=f"the system permits {hard} open files (ulimit -n)",
        )


def _keep_buffers() -> None:
    """Buffers of sockets and answers are often larger than the 128 KiB from which glibc asks the kernel for each anew,
    and gives each back: about a twentieth of the processor's time went into faulting them in again. The store gives
    memory back after each checkpoint (store/rocksdb.py)."""
    tune = getattr(CDLL(None), "mallopt", None)  # absent where the C library is another
    if tune is not None:
        tune(_M_MMAP_THRESHOLD, _BUFFER_BYTES)
        tune(_M_TRIM_THRESHOLD, _BUFFER_BYTES)


def _calm_collector() -> None:
    """Jobs and events are made without cycles, so the collector finds next to nothing, yet would look every 700 objects
    and, in the end, through heaps of millions of integers. It looks more rarely, and not at what recovery loaded."""
    gc.freeze()
    gc.set_threshold(*_COLLECT_EVERY)


async def _run(settings: Settings, keys: KeyRing) -> int:
    _allow_connections(settings)
    _keep_buffers()
    node = Node(settings)
    _calm_collector()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, node.shutdown)
    resp: RespServer | None = None
    http: HttpServer | None = None
    try:
        if settings.resp_port >= 0:
            resp = await _listen_resp(node, settings, keys)
        if settings.http_port >= 0:
            http = await _listen_http(node, settings, keys)
        ports = {
            "pid": os.getpid(),
            "resp": resp.port if resp is not None else -1,
            "http": http.port if http is not None else -1,
        }
        _announce(node, settings, keys, ports)
        if settings.port_file:
            _write_whole(Path(settings.port_file), json.dumps(ports))
        await node.stop_asked.wait()
    finally:
        if http is not None:
            await http.close()
        if resp is not None:
            await resp.close()
        await node.close()
    return 0 if node.stopped is None else 1


async def _listen_resp(node: Node, settings: Settings, keys: KeyRing) -> RespServer:
    options = RespOptions(
        clients_max=settings.clients_max,
        idle_timeout_s=settings.idle_timeout_s,
        bulk_bytes_max=min(settings.max_job_bytes, limits.PAYLOAD_BYTES_MAX),
    )
    server = RespServer(node, options, keys)
    try:
        await server.start(settings.host, settings.resp_port)
    except OSError as error:
        raise _not_listening(settings.host, settings.resp_port, error, "--resp-port") from error
    return server


async def _listen_http(node: Node, settings: Settings, keys: KeyRing) -> HttpServer:
    server = HttpServer(node, HttpOptions.of(settings), keys)
    try:
        await server.start(settings.host, settings.http_port)
    except OSError as error:
        raise _not_listening(settings.host, settings.http_port, error, "--http-port") from error
    return server


def _not_listening(host: str, port: int, error: OSError, flag: str) -> SettingsError:
    """Says which of the two is to blame."""
    if isinstance(error, socket.gaierror) or error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return _unusable(host, error)
    return SettingsError(f"cannot listen on {host}:{port}: {error.strerror or error}; choose another {flag}")


def _unusable(host: str, error: OSError) -> SettingsError:
    return SettingsError(
        f"cannot listen on host {host!r}: {error.strerror or error}; set --host to an address of this machine"
    )


def _write_whole(path: Path, text: str) -> None:
    """Whoever waits for the file never reads half of it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)


def _announce(node: Node, settings: Settings, keys: KeyRing, ports: dict[str, int]) -> None:
    """That it serves, and where: a panel for people, one line for machines."""
    if settings.diagnostics != "json":
        _banner(node, settings, keys, ports)
        return
    _diagnostics.info(
        "ready",
        version=__version__,
        node=node.node_id,
        host=settings.host,
        **ports,
        data=str(Path(settings.data).absolute()),
        recovered_jobs=node.recovered.jobs,
        recovered_topics=node.recovered.topics,
        recovery_seconds=round(node.recovered.seconds, 3),
    )


def _banner(node: Node, settings: Settings, keys: KeyRing, ports: dict[str, int]) -> None:
    recovered = node.recovered
    rows = Table.grid(padding=(0, 2))
    rows.add_row("Redis protocol", f"redis-cli -h {settings.host} -p {ports['resp']}" if ports["resp"] > 0 else "off")
    scheme = "https" if settings.tls_cert else "http"
    rows.add_row("HTTP", f"{scheme}://{settings.host}:{ports['http']}/docs" if ports["http"] > 0 else "off")
    if ports["resp"] > 0:
        rows.add_row("try", f"{_redis_cli(settings, keys, ports['resp'])} ADDJOB q hello 0 PRIORITY 5")
    rows.add_row("data", f"{Path(settings.data).absolute()}")
    rows.add_row("recovered", f"{recovered.jobs:,} jobs in {recovered.topics:,} topics, {recovered.seconds:.2f} s")
    rows.add_row("memory limit", f"{settings.memory_limit_bytes / 2**30:.1f} GiB")
    rows.add_row("node", f"{node.node_id[:8]}  (process {ports['pid']}; Ctrl-C stops it in order)")
    Console(stderr=True).print(Panel(rows, title=f"Esker {__version__} is ready", expand=False))


def _redis_cli(settings: Settings, keys: KeyRing, port: int) -> str:
    """As it can be typed. The secret is for the reader to fill in: it must not get into a log."""
    host = "" if settings.host in _REDIS_CLI_REACHES else f" -h {settings.host}"
    secret = "" if not keys.required else " -a PASSWORD" if settings.password else " -a KEY"
    return f"redis-cli{host} -p {port}{secret}"

"""INFO: what the front and the node know about themselves, in Disque's sections plus Loop.

The node's own facts come from `Broker.facts`; a fact of both is the node's.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from typing import TYPE_CHECKING, Final

from esker import __version__
from esker.fronts.resp import encoding
from esker.fronts.resp.commands.session import DISQUE_VERSION, REDIS_VERSION
from esker.fronts.resp.commands.table import command
from esker.fronts.resp.rules import LISTS

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection
    from esker.fronts.resp.server import RespServer

Section = dict[str, int | float | str]

SECTIONS: Final = (
    "Server", "Clients", "Memory", "Jobs", "Queues", "Persistence", "Stats", "CPU", "Commandstats", "Loop",
)  # fmt: skip
_MEMORY: Final = ("used_memory", "used_memory_peak", "used_memory_rss")
_ON_REQUEST: Final = frozenset({"Commandstats"})  # shown by name, or with `all`


@command(b"INFO", -1, "readonly", "blind", rule=LISTS)  # it answers also while the disk does not
def info(client: Connection, arguments: list[bytes]) -> bytes:
    """A key with prefixes is told of the server; all else sums up what everyone does."""
    wanted = {argument.decode("latin-1").lower() for argument in arguments[1:]} or {"default"}
    everything = bool(wanted & {"all", "everything"})
    sections = _sections(client.server) if not client.key.prefixes else {"Server": _server(client.server)}
    chosen = [
        name
        for name in sections
        if everything or name.lower() in wanted or ("default" in wanted and name not in _ON_REQUEST)
    ]
    texts = [f"# {name}\r\n" + "".join(f"{k}:{v}\r\n" for k, v in sections[name].items()) for name in chosen]
    return encoding.text("\r\n".join(texts))


def _sections(server: RespServer) -> dict[str, Section]:
    own: dict[str, Section] = {
        "Server": _server(server),
        "Clients": _clients(server),
        "Stats": _stats(server),
        "CPU": _cpu(),
        "Commandstats": _commandstats(server),
    }
    facts = server.broker.facts()
    names = [*SECTIONS, *(name for name in facts if name not in SECTIONS)]
    merged = {name: {**own.get(name, {}), **facts.get(name, {})} for name in names}
    merged["Memory"] |= _memory_in_words(merged["Memory"])
    merged["Persistence"] = {**_persistence_in_words(server, merged["Persistence"]), **merged["Persistence"]}
    return merged


def _memory_in_words(memory: Section) -> Section:
    used, peak, resident = (float(memory.get(name, 0)) for name in _MEMORY)
    return {
        "used_memory_human": _human(used),
        "used_memory_peak_human": _human(peak),
        "mem_fragmentation_ratio": round(resident / used, 2) if used else 0.0,
        "mem_allocator": "pymalloc",
    }


def _human(size: float) -> str:
    for unit in ("B", "K", "M"):
        if size < 1024:
            return f"{size:.2f}{unit}" if unit != "B" else f"{size:.0f}B"
        size /= 1024
    return f"{size:.2f}G"


def _persistence_in_words(server: RespServer, persistence: Section) -> Section:
    """Disque's names for what the journal and the checkpoints do."""
    return {
        "aof_enabled": 1,
        "aof_state": "on",
        "aof_rewrite_in_progress": persistence.get("checkpoint_in_progress", 0),
        "aof_rewrite_scheduled": 0,
        "aof_last_rewrite_time_sec": int(float(persistence.get("checkpoint_last_seconds", 0))),
        "aof_current_rewrite_time_sec": -1,
        "aof_last_bgrewrite_status": "err" if persistence.get("checkpoint_error") else "ok",
        "aof_last_write_status": "err" if server.write_failed or server.broker.stopped is not None else "ok",
    }


def _server(server: RespServer) -> Section:
    uptime = int(time.time() - server.started_at)
    return {
        "esker_version": __version__,
        "disque_version": DISQUE_VERSION,
        "disque_git_sha1": "00000000",  # of a build of Disque, which this is not
        "disque_git_dirty": 0,
        "disque_build_id": 0,
        "redis_version": REDIS_VERSION,
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "arch_bits": 64,
        "multiplexing_api": "uvloop",
        "gcc_version": platform.python_compiler(),
        "python_version": platform.python_version(),
        "process_id": os.getpid(),
        "run_id": server.run_id,
        "node_id": server.broker.node_id,
        "tcp_port": server.port,
        "uptime_in_seconds": uptime,
        "uptime_in_days": uptime // 86_400,
        "hz": 10,
        "executable": sys.executable,
        "config_file": "",
    }


def _clients(server: RespServer) -> Section:
    clients = server.clients.values()
    return {
        "connected_clients": len(server.clients),
        "maxclients": server.options.clients_max,
        "client_longest_output_list": max((client.unread_bytes for client in clients), default=0),
        "client_biggest_input_buf": max((client.unparsed_bytes for client in clients), default=0),
        "blocked_clients": sum(client.waits_for_jobs for client in clients),
        "monitors": len(server.monitors),
    }


def _stats(server: RespServer) -> Section:
    return {
        "total_connections_received": server.connections_received,
        "rejected_connections": server.connections_rejected,
        "slow_readers_cut": server.slow_readers_cut,
        "total_commands_processed": server.commands_processed,
        "instantaneous_ops_per_sec": server.rates.commands,
        "instantaneous_input_kbps": round(server.rates.bytes_in / 1024, 2),
        "instantaneous_output_kbps": round(server.rates.bytes_out / 1024, 2),
        "latest_fork_usec": 0,  # nothing forks
        "total_error_replies": sum(entry.failures for entry in server.entries.values()),
        "total_net_input_bytes": server.bytes_in,
        "total_net_output_bytes": server.bytes_out,
    }


def _cpu() -> Section:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "used_cpu_sys": round(own.ru_stime, 2),
        "used_cpu_user": round(own.ru_utime, 2),
        "used_cpu_sys_children": round(children.ru_stime, 2),
        "used_cpu_user_children": round(children.ru_utime, 2),
    }


def _commandstats(server: RespServer) -> Section:
    return {
        f"cmdstat_{name.decode().lower()}": (
            f"calls={entry.calls},usec={entry.ns // 1000},usec_per_call={entry.ns / 1000 / entry.calls:.2f},"
            f"failed_calls={entry.failures}"
        )
        for name, entry in server.entries.items()
        if entry.calls
    }

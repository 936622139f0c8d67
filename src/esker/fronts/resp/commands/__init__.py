"""Every command of the Redis front, one module per noun. Importing this package fills `COMMANDS`."""

from __future__ import annotations

from esker.fronts.resp.commands import (
    addjob,
    admin,
    catalogue,
    clients,
    cluster,
    config,
    deadletters,
    getjob,
    info,
    jobs,
    queues,
    scans,
    session,
    slowness,
    topics,
    transactions,
)
from esker.fronts.resp.commands.table import COMMANDS, Command

__all__ = [
    "COMMANDS",
    "Command",
    "addjob",
    "admin",
    "catalogue",
    "clients",
    "cluster",
    "config",
    "deadletters",
    "getjob",
    "info",
    "jobs",
    "queues",
    "scans",
    "session",
    "slowness",
    "topics",
    "transactions",
]

"""Ten thousand connections that do nothing must cost nothing."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from tests.crash.process import NodeProcess

CLIENTS = 10_000


@pytest.mark.timeout(600)
def test_ten_thousand_idle_connections_are_held_and_served(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CLIENTS + 1024
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"this machine permits {hard} open files per process; {needed} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    clients: list[socket.socket] = []
    try:
        with NodeProcess(tmp_path / "data", "--set", f"clients_max={CLIENTS + 10}") as node:
            clients += (socket.create_connection(("127.0.0.1", node.port), timeout=20) for _ in range(CLIENTS))
            for client in (*clients[:50], *clients[-50:]):
                client.sendall(b"PING\r\n")
                assert client.recv(100) == b"+PONG\r\n"
            with node.client() as admin:
                assert int(admin.info("clients")["connected_clients"]) == CLIENTS + 1
                job_id = admin.execute_command("ADDJOB", "q", "still serving", 0)
                assert admin.execute_command("ACKJOB", job_id) == 1
    finally:
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

"""The listening side: its port is its own, and it ends in order."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from esker.errors import SettingsError
from esker.fronts.http.options import HttpOptions
from esker.fronts.http.server import HttpServer
from esker.node.runtime import Node
from esker.node.settings import Settings
from esker.testing.broker import Broker
from tests.fronts.http.web import Web


def test_both_protocols_are_spoken_on_one_port(shared_broker: Broker) -> None:
    for http2, version in ((False, "HTTP/1.1"), (True, "HTTP/2")):
        with httpx.Client(base_url=shared_broker.http_url, http1=not http2, http2=http2) as client:
            assert {client.get("/v0/health").http_version for _ in range(3)} == {version}


def test_a_connection_is_kept_for_the_next_request(shared_broker: Broker) -> None:
    with socket.create_connection(("127.0.0.1", shared_broker.http_port), timeout=10) as wire:
        for _ in range(3):
            wire.sendall(b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert wire.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_a_port_that_is_taken_is_refused(tmp_path: Path, shared_broker: Broker) -> None:
    async def second() -> None:
        node = Node(Settings(data=str(tmp_path / "data")))
        try:
            with pytest.raises(OSError, match="in use"):
                await HttpServer(node).start("127.0.0.1", shared_broker.http_port)
        finally:
            await node.close()

    asyncio.run(second())


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    async def start(options: HttpOptions) -> None:
        node = Node(Settings(data=str(tmp_path / "data")))
        try:
            await HttpServer(node, options).start("127.0.0.1", 0)
        finally:
            await node.close()

    with pytest.raises(SettingsError, match="belong together"):
        asyncio.run(start(HttpOptions(tls_cert="cert.pem")))
    with pytest.raises(SettingsError, match="tls_cert"):
        asyncio.run(start(HttpOptions(tls_cert="missing.pem", tls_key="missing.pem")))


def test_with_a_certificate_it_speaks_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    with Broker(tls_cert=str(certificate), tls_key=str(key)) as broker:
        trusted = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=f"https://127.0.0.1:{broker.http_port}", verify=trusted, http2=True) as client:
            answer = client.get("/v0/health")
            assert (answer.status_code, answer.http_version) == (200, "HTTP/2")


def test_it_ends_in_order_while_clients_wait() -> None:
    with Broker() as broker, Web(broker.http_url) as web, Web(broker.http_url) as idle:
        web.put("t")
        idle.client.get("/v0/health")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(web.diff, "t", wait_ms=30_000)
            time.sleep(0.3)  # it waits in the server, which shows this nowhere
            began = time.monotonic()
            broker.stop()
            assert waiting.result(5)["records"] == []
    assert time.monotonic() - began < 8

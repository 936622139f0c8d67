"""A server that does nothing but answer: to every claim the same jobs, to everything else the same ack.

    python -m bench.canned PORT BATCH

It shows what sockets and the load generator allow: no server that keeps, leases or syncs anything can be quicker.
It runs on the loop that Esker runs on: what it spends on a request, Esker spends before it has done anything.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import cast

import uvloop

from bench.talk import payload


def claimed(batch: int) -> bytes:
    """As large as a node's own answer."""
    job = b'{"$seq":%d,"lease_id":"lease_0123456789abcdef","deadline":1790000000000,"$ts":1790000000000,"deliveries":1,'
    jobs = b",".join(job % number + b'"data":"%b"}' % payload(number) for number in range(100_000, 100_000 + batch))
    return b'{"topic":"claims","claimed":[%b],"count":%d,"ready":100000,"performance":{}}' % (jobs, batch)


def acked(batch: int) -> bytes:
    return b'{"topic":"claims","acked":%d,"skipped":[],"ready":100000,"in_flight":400,"performance":{}}' % batch


def answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


class Connection(asyncio.Protocol):
    def __init__(self, batch: int) -> None:
        self._claimed, self._acked = answer(claimed(batch)), answer(acked(batch))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._claimed if b"/claim " in data[:64] else self._acked)


async def serve(port: int, batch: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Connection(batch), "127.0.0.1", port)
    gc.disable()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))

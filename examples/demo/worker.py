"""One worker of the demo: takes orders over the Redis protocol, does them, and tells a log what it has done.

Now and then an order fails and is given back; some fail always and end as dead letters. A worker that is told to die
leaves in the middle of its work, with orders in its hands: they come back to others when their leases end.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import time
from collections.abc import Callable
from typing import Any

import redis

QUEUE, DONE = "orders", "shipped"
AT_A_TIME = 100
IDLE_MS = 500

Order = dict[str, Any]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--name", required=True)
    options.add_argument("--resp-port", type=int, required=True)
    options.add_argument("--http-port", type=int, required=True)
    options.add_argument("--dies-after", type=int, default=0, help="orders; 0: it lives")
    given = options.parse_args()
    work(given.name, given.resp_port, given.http_port, given.dies_after)


def work(name: str, resp_port: int, http_port: int, dies_after: int) -> None:
    """Until nothing has come for a while and nothing is left."""
    say: Callable[..., Any] = redis.Redis(port=resp_port, protocol=2).execute_command
    say("CLIENT", "SETNAME", name)
    web = http.client.HTTPConnection("127.0.0.1", http_port, timeout=30)
    chance = random.Random(name)
    done = 0
    while True:
        jobs = say("GETJOB", "TIMEOUT", IDLE_MS, "COUNT", AT_A_TIME, "FROM", QUEUE)
        if not jobs:
            if say("QLEN", QUEUE) == 0:
                return
            continue
        if dies_after and done >= dies_after:
            os._exit(1)
        good: list[tuple[bytes, Order]] = []
        bad: list[tuple[bytes, Order]] = []
        for _, job_id, body in jobs:
            order = json.loads(body)
            failed = order["id"] % 4000 == 0 or chance.random() < 0.01
            (bad if failed else good).append((job_id, order))
        if good:
            tell(web, name, [order for _, order in good])
            say("ACKJOB", *(job_id for job_id, _ in good))
        if bad:
            say("NACK", *(job_id for job_id, _ in bad))
        done += len(good)


def tell(web: http.client.HTTPConnection, name: str, orders: list[Order]) -> None:
    now_ms = time.time_ns() // 1_000_000
    records = [{"data": {**order, "worker": name, "at_ms": now_ms}, "tag": str(order["product"])} for order in orders]
    body = json.dumps({"records": records, "node": name})
    web.request("POST", f"/v0/topics/{DONE}?return_seqs=false", body, {"content-type": "application/json"})
    answer = web.getresponse()
    told = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"the log {DONE} was not written: {told.decode(errors='replace')}")


if __name__ == "__main__":
    main()

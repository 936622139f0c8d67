"""kill -9 right after an answer: configs, routers, deletions and lasting leases were promised, and are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.http.api import Api, data, part, rows, seqs, whole
from tests.crash.process import NodeProcess

CLASSES = ("ephemeral", "memory", "disk", "fsync")


@pytest.mark.timeout(600)
def test_what_was_answered_about_topics_and_routers_survives_a_kill_at_that_moment(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data")
    with node, Api(node.http_port) as api:
        for durability in CLASSES:
            api.put(durability, durability=durability, cap_records=7)
            api.put(f"{durability}.gone", durability=durability)
            api.ask("DELETE", f"/topics/{durability}.gone")
        api.router("kept", "fsync", "copies", filter="t*", guarantee="exactly_once")
        api.router("dropped", "disk", "other")
        api.ask("DELETE", "/routers/dropped")
        api.put("fsync", 200, durability="fsync", cap_records=8)
        node.kill()
    with node, Api(node.http_port) as api:
        for durability in CLASSES:
            config = part(api.state(durability), "config")
            caps = 8 if durability == "fsync" else 7
            assert (config["durability"], config["cap_records"]) == (durability, caps)
        names = [row["topic"] for row in rows(api.ask("GET", "/topics"), "topics")]
        assert names == sorted([*CLASSES, "copies", "other"])
        listed = rows(api.ask("GET", "/routers"), "routers")
        assert [(row["router"], row["guarantee"]) for row in listed] == [("kept", "exactly_once")]
        api.post("fsync", {"data": 1, "tag": "t1"}, {"data": 2, "tag": "u"})
        node.kill()
    with node, Api(node.http_port) as api:
        assert data(api.diff("copies")) == [1]
        assert api.ask("GET", "/routers/kept")["forwarded_total"] == 1
        api.delete("fsync", before_seq=2)
        api.ask("DELETE", "/topics/copies")
        node.kill()
    with node, Api(node.http_port) as api:
        assert seqs(api.diff("fsync")) == [2]
        assert rows(api.ask("GET", "/routers"), "routers") == []
        assert whole(api.write("copies", "new", status=201), "first_seq") == 1
        node.kill()
    with node, Api(node.http_port) as api:
        assert len(data(api.diff("copies"))) <= 1  # of class disk: it may have been too young


@pytest.mark.timeout(600)
def test_a_lasting_lease_survives_a_kill_and_others_fall(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data")
    with node, Api(node.http_port) as api:
        for name, lasting in (("lasting", True), ("plain", False)):
            api.put(name, type="queue", durable=True, leases_durable=lasting, lease_ms=600_000)
            api.write(name, "a", "b", "c")
            leases = [job["lease_id"] for job in api.claim(name, "w", 2)]
            assert api.ack(name, "w", 1, lease_ids=leases[:1])["acked"] == 1
        lasting_lease = api.claim("lasting", "v")[0]["lease_id"]
        api.nack("lasting", "w", 2, delay_ms=600_000)
        node.kill()
    with node, Api(node.http_port) as api:
        assert api.queue("plain") == {"ready": 2, "in_flight": 0, "dead_lettered": 0}
        assert [job["data"] for job in api.claim("plain", "x", 9)] == ["b", "c"]
        assert api.queue("lasting") == {"ready": 0, "in_flight": 1, "dead_lettered": 0}
        assert api.ack("lasting", "v", 3, lease_ids=[lasting_lease])["acked"] == 1


@pytest.mark.timeout(600)
def test_dead_letters_move_once_whenever_the_node_is_killed(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data")
    jobs = list(range(20))
    with node, Api(node.http_port) as api:
        api.put("dead", durable=True)
        api.put("q", type="queue", durable=True, max_deliveries=1, dead_letter="dead")
        api.write("q", *jobs)
        claimed = [whole(job, "$seq") for job in api.claim("q", "w", 10)]
        api.nack("q", "w", *claimed)
        api.claim("q", "w", 3)  # some move now
        node.kill()
    with node, Api(node.http_port) as api:
        found = data(api.diff("dead")) + data(api.diff("q"))
        assert sorted(str(one) for one in found) == sorted(str(one) for one in jobs)

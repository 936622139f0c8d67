"""A key with prefixes can neither read, change nor notice anything of another: every route, every command.

Two nodes. In both, the key of `team.` has the same things. In one of them the key of `other.` has topics, jobs, leases,
routers, snapshots, loads, watches, consumers and clients; in the other it has nothing. Every route and every command is
tried with the key of `team.`, aimed at what `other.` has. The answers of both nodes must be the same: then nothing of
the other's can be inferred from them. At the end all that the other has must be as it was.

Numbers that are of the whole node are left out of the comparison: positions of the journal, topics' numbers, times, ids
of clients. A watch is told from one that does not exist (401 and 404, as the API's contract has it); its id is secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import httpx
import pyarrow as pa
import pytest
from websockets.sync.client import connect

from esker.fronts.http.routes import Reach as HttpReach
from esker.fronts.http.table import ROUTES
from esker.fronts.resp.commands import COMMANDS
from esker.fronts.resp.commands import clients as client_commands
from esker.fronts.resp.commands import cluster as cluster_commands
from esker.fronts.resp.commands import topics as topic_commands
from esker.fronts.resp.rules import Reach, Rule
from esker.testing.broker import Broker
from tests.fronts.resp.wire import Failure, Simple, Wire, job_id
from tests.loads import Loader, stream

TEAM, OTHER, ROOT = "team-key", "other-key", "root-key"
KEYS = f"{TEAM}::team.,{OTHER}::other.,{ROOT}"
PART = stream({"value": ["7"]})


@dataclass
class World:
    """A node. `ids` are those of what the other has; where it has nothing, they are those of the other node."""

    broker: Broker
    ids: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.team = httpx.Client(base_url=self.broker.http_url, headers={"authorization": f"Bearer {TEAM}"}, timeout=20)
        self.other = httpx.Client(
            base_url=self.broker.http_url, headers={"authorization": f"Bearer {OTHER}"}, timeout=20
        )
        self.resp = self._log_in(TEAM)
        self.theirs = self._log_in(OTHER)
        self.waiting = self._log_in(OTHER)

    def _log_in(self, key: str) -> Wire:
        wire = Wire(self.broker.resp_port)
        assert wire("AUTH", key) == Simple("OK")
        return wire

    def close(self) -> None:
        for each in (self.team, self.other, self.resp, self.theirs, self.waiting):
            each.close()


@pytest.fixture(scope="module")
def worlds() -> Iterator[tuple[World, World]]:
    with Broker(api_keys=KEYS) as first, Broker(api_keys=KEYS) as second:
        full, bare = World(first), World(second)
        for world in (full, bare):
            _settle_team(world)
        _settle_other(full)
        bare.ids = full.ids
        yield full, bare
        full.close()
        bare.close()


def _settle_team(world: World) -> None:
    for name, kind in (("team.log", "log"), ("team.q", "queue")):
        assert world.team.put(f"/v0/topics/{name}", json={"type": kind}).status_code == 201
    assert world.team.post("/v0/topics/team.log", json={"records": [{"data": 1}]}).status_code == 200
    assert world.team.put("/v0/routers/team.r", json={"source": "team.log", "dest": "team.copy"}).status_code == 201
    job_id(world.resp("ADDJOB", "team.q", "mine", 0))


def _settle_other(world: World) -> None:
    web = world.other
    for name, config in (
        ("other.log", {"type": "log"}),
        ("other.dead", {"type": "queue"}),
        ("other.q", {"type": "queue", "dead_letter": "other.dead"}),
    ):
        assert web.put(f"/v0/topics/{name}", json=config).status_code == 201
    web.post("/v0/topics/other.log", json={"records": [{"data": "secret"}]})
    assert web.put("/v0/routers/other.r", json={"source": "other.log", "dest": "other.copy"}).status_code == 201
    ids = world.ids
    ids["job"] = job_id(world.theirs("ADDJOB", "other.q", "secret", 0, "PRIORITY", 1))
    ids["leased"] = job_id(world.theirs("ADDJOB", "other.q", "secret too", 0, "PRIORITY", 9))
    assert isinstance(world.theirs("GETJOB", "FROM", "other.q"), list)
    ids["snapshot"] = web.post("/v0/topics/other.q/snapshots").json()["snapshot"]
    ids["wid"] = web.post("/v0/watch", json={"topics": {"other.log": {}}}).json()["wid"]
    web.post("/v0/consumers/spark", json={"topics": {"other.log": {"0": 1}}, "info": {"secret": "yes"}})
    with Loader(world.broker.http_url, "nightly", OTHER) as loader:
        loader.run({"value": ["1", "2"]}, batch=0, topic="other.log")
        ids["part"] = loader.stage({"value": ["3"]}, batch=1)
    with Loader(world.broker.http_url, "weekly", OTHER) as loader:
        loader.run({"value": ["3"]}, batch=0, topic="other.log")
    ids["client"] = str(world.waiting("CLIENT", "ID"))
    ids["address"] = "{}:{}".format(*world.waiting.socket.getsockname())
    world.waiting.send(b"GETJOB FROM other.empty\r\n")


# -- what is tried

Body = Mapping[str, object] | bytes | None


@dataclass(frozen=True)
class Ask:
    """An HTTP request. `{job}` and the like stand for an id of the other's."""

    path: str
    body: Body = None

    def run(self, world: World, method: str) -> object:
        path = self.path.format(**world.ids)
        body = self.body
        if isinstance(body, bytes):
            answer = world.team.request(method, path, content=body)
        elif body is None:
            answer = world.team.request(method, path)
        else:
            answer = world.team.request(method, path, json=json.loads(_filled(json.dumps(body), world)))
        media = answer.headers["content-type"]
        if media.startswith(("application/json", "text/")):
            return answer.status_code, media, _plain(answer.text)
        table = pa.ipc.open_stream(answer.content).read_all()
        return answer.status_code, media, table.select(["kind", "topic", "seq"]).to_pylist()  # of events


@dataclass(frozen=True)
class Talk:
    """Messages to a WebSocket."""

    messages: tuple[Mapping[str, object], ...]

    def run(self, world: World, method: str) -> object:
        url = f"ws://127.0.0.1:{world.broker.http_port}/v0/ws"
        with connect(url, additional_headers={"authorization": f"Bearer {TEAM}"}) as socket:
            heard = []
            for message in self.messages:
                socket.send(json.dumps(message))
                heard.append(_plain(str(socket.recv(timeout=20))))
        return heard


def _filled(text: str, world: World) -> str:
    for name, value in world.ids.items():
        text = text.replace(f"<{name}>", value)
    return text


_VOLATILE = (
    (re.compile(r'"performance":\{[^}]*\}'), '"performance":{}'),
    (re.compile(r'("[a-z_$]*(?:_ms|_ts|ts|position|epoch|next|first|hot_from|deadline)"):\s*\d+'), r"\1:0"),
    (re.compile(r'("(?:lease_id|wid|stream_url|snapshot|node|spool|path)"):\s*"[^"]*"'), r'\1:""'),
    (re.compile(r"D[I][0-9a-f]{44}SQ"), "ID"),
    (re.compile(r"uptime_ms(\"?[: ]+)\d+"), r"uptime_ms\1 0"),
    (re.compile(r"topics_uptime_ms \d+"), "topics_uptime_ms 0"),
)


def _plain(text: str) -> str:
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    return text


WRITE = {"records": [{"data": 1}]}
HELD = {"node": "w", "seqs": [1, 2], "lease_ms": 1000}

HTTP: dict[str, list[Ask] | list[Talk]] = {
    "PUT /v0/topics/{topic}": [
        Ask("/v0/topics/other.q", {"type": "queue"}), Ask("/v0/topics/other.new", {}), Ask("/v0/topics/oth", {}),
        Ask("/v0/topics/team.q", {"type": "queue", "dead_letter": "other.dead"}),
    ],
    "GET /v0/topics/{topic}": [Ask("/v0/topics/other.q"), Ask("/v0/topics/team.log?touch=false"), Ask("/v0/topics/x")],
    "GET /v0/topics": [
        Ask("/v0/topics"), Ask("/v0/topics?prefix=other."), Ask("/v0/topics?page_size=1"), Ask("/v0/topics?prefix=o"),
        Ask("/v0/topics?touch=true"), Ask("/v0/topics?cursor=b3RoZXIubG9n"), Ask("/v0/topics?page_size=1000"),
    ],
    "DELETE /v0/topics/{topic}": [Ask("/v0/topics/other.q"), Ask("/v0/topics/other.log?if_empty=true")],
    "POST /v0/topics/{topic}": [
        Ask("/v0/topics/other.log", WRITE), Ask("/v0/topics/other.new", WRITE),
        Ask("/v0/topics/team.fresh", {**WRITE, "config": {"dead_letter": "other.dead", "type": "queue"}}),
    ],
    "POST /v0/topics/{topic}/diff": [Ask("/v0/topics/other.log/diff", {}), Ask("/v0/topics/other.none/diff", {})],
    "POST /v0/topics/{topic}/delete": [Ask("/v0/topics/other.log/delete", {"before_seq": 9})],
    "POST /v0/bulk/plan": [
        Ask("/v0/bulk/plan", {}), Ask("/v0/bulk/plan", {"topics": ["other.log"]}),
        Ask("/v0/bulk/plan", {"topics": ["team.log", "other.none"]}), Ask("/v0/bulk/plan", {"pattern": ".*"}),
        Ask("/v0/bulk/plan", {"pattern": "other.*"}), Ask("/v0/bulk/plan", {"events": True}),
    ],
    "GET /v0/topics/{topic}/records": [Ask("/v0/topics/other.log/records"), Ask("/v0/topics/other.none/records")],
    "GET /v0/topics/{topic}/records/file": [Ask("/v0/topics/other.log/records/file")],
    "POST /v0/topics/{topic}/snapshots": [Ask("/v0/topics/other.q/snapshots", {})],
    "GET /v0/snapshots/{snapshot}/{chunk}": [
        Ask("/v0/snapshots/{snapshot}/0"), Ask("/v0/snapshots/{snapshot}/9"), Ask("/v0/snapshots/{snapshot}/x"),
    ],
    "GET /v0/snapshots/{snapshot}/{chunk}/file": [Ask("/v0/snapshots/{snapshot}/0/file")],
    "DELETE /v0/snapshots/{snapshot}": [Ask("/v0/snapshots/{snapshot}")],
    "GET /v0/events": [
        Ask("/v0/events"), Ask("/v0/events?topics=other.log"), Ask("/v0/events?kinds=LoadAdvanced,RouterPut"),
    ],
    "POST /v0/topics/{topic}/claim": [Ask("/v0/topics/other.q/claim", {"node": "w"})],
    "POST /v0/topics/{topic}/ack": [Ask("/v0/topics/other.q/ack", HELD)],
    "POST /v0/topics/{topic}/nack": [Ask("/v0/topics/other.q/nack", HELD)],
    "POST /v0/topics/{topic}/extend": [Ask("/v0/topics/other.q/extend", HELD)],
    "POST /v0/topics/{topic}/replay": [
        Ask("/v0/topics/other.dead/replay", {"count": 9}), Ask("/v0/topics/team.q/replay", {"count": 9}),
    ],
    "PUT /v0/routers/{router}": [
        Ask("/v0/routers/other.r", {"source": "team.log", "dest": "team.x"}),
        Ask("/v0/routers/team.spy", {"source": "other.log", "dest": "team.x"}),
        Ask("/v0/routers/team.spy", {"source": "team.log", "dest": "other.log"}),
    ],
    "GET /v0/routers/{router}": [Ask("/v0/routers/other.r"), Ask("/v0/routers/other.none")],
    "GET /v0/routers": [
        Ask("/v0/routers"), Ask("/v0/routers?source=other.log"), Ask("/v0/routers?dest=other.copy"),
        Ask("/v0/routers?page_size=1"), Ask("/v0/routers?prefix=o"),
    ],
    "DELETE /v0/routers/{router}": [Ask("/v0/routers/other.r")],
    "POST /v0/watch": [
        Ask("/v0/watch", {"topics": {"other.log": {}}}), Ask("/v0/watch?lenient=true", {"topics": {"other.log": {}}}),
        Ask("/v0/watch", {"topics": {"team.log": {}, "other.log": {}}}),
    ],
    "GET /v0/watch/{wid}": [],  # below
    "GET /v0/topics/{topic}/work": [Ask("/v0/topics/other.q/work?node=w")],
    "WEBSOCKET /v0/ws": [Talk((
        {"op": "subscribe", "topic": "other.log"}, {"op": "subscribe", "topic": "other.none"},
        {"op": "subscribe", "topics": {"other.log": {}}, "lenient": True},
        {"op": "unsubscribe", "topic": "other.log"}, {"op": "publish", "topic": "other.log", **WRITE},
        {"op": "ping"},
    ))],
    "POST /v0/consumers/{consumer}": [
        Ask("/v0/consumers/spark", {"topics": {"other.log": {"0": 9}}}), Ask("/v0/consumers/spark", {"topics": {}}),
        Ask("/v0/consumers/spark", {"topics": {"team.log": {"0": 2}}}),
    ],
    "GET /v0/consumers": [Ask("/v0/consumers")],
    "GET /v0/loads/{load}/{batch}": [Ask("/v0/loads/nightly/0"), Ask("/v0/loads/nightly/1"), Ask("/v0/loads/none/0")],
    "POST /v0/loads/{load}/{batch}/commit": [
        Ask("/v0/loads/nightly/1/commit", {"parts": ["<part>"], "topic": "team.log"}),
        Ask("/v0/loads/nightly/1/commit", {"parts": ["<part>"], "topic": "other.log"}),
        Ask("/v0/loads/nightly/0/commit", {"parts": [], "topic": "team.log"}),
    ],
    "PUT /v0/loads/{load}/{batch}/{part}": [
        Ask("/v0/loads/nightly/1/0?attempt=a1", PART), Ask("/v0/loads/nightly/1/1?attempt=b2&topic=team.log", PART),
        Ask("/v0/loads/nightly/1/2?attempt=b3&topic=other.log", PART),
    ],
    "DELETE /v0/loads/{load}/{batch}": [Ask("/v0/loads/nightly/1"), Ask("/v0/loads/nightly/0")],
    "GET /v0/health": [Ask("/v0/health")], "GET /healthz": [Ask("/healthz")],
    "GET /v0/ready": [Ask("/v0/ready")], "GET /readyz": [Ask("/readyz")],
    "GET /v0/metrics": [Ask("/v0/metrics")], "GET /metrics": [Ask("/metrics")],
    "GET /openapi.json": [Ask("/openapi.json")], "GET /docs": [Ask("/docs")],
}  # fmt: skip

JOB, LEASED = "<job>", "<leased>"
RESP: dict[str, list[tuple[str | int, ...]]] = {
    "ADDJOB": [("other.q", "x", 0), ("other.new", "x", 0, "MAXLEN", 1), ("oth", "x", 0)],
    "GETJOB": [
        ("FROM", "other.q"), ("NOHANG", "FROM", "team.none", "other.q"), ("NOHANG", "COUNT", 9, "from", "other.none"),
        ("FROM", "team.q", "from", "other.q"), ("TIMEOUT", "FROM", "other.q"),
    ],
    "GETJOBS": [("FROM", "other.q")],
    "ACKJOB": [(JOB,), (LEASED, JOB)], "FASTACK": [(LEASED,)], "NACK": [(LEASED,)],
    "ENQUEUE": [(JOB,), (LEASED,)], "QUEUE": [(LEASED,)], "DEQUEUE": [(JOB,)],
    "DELJOB": [(JOB,), ("BCAST", "FORCE", LEASED)],
    "WORKING": [(LEASED,), (JOB,)], "SHOW": [(JOB,), (LEASED,)], "LOADJOB": [("x",)],
    "JOB|PRIORITY": [(99, JOB)], "JOB|EXTEND": [(99_000, LEASED)],
    "QLEN": [("other.q",), ("other.none",), ("team.q",)], "QPEEK": [("other.q", 10), ("other.none", 10)],
    "QSTAT": [("other.q",), ("other.empty",), ("other.none",)],
    "PAUSE": [("other.q", "all"), ("other.q", "state")],
    "QSCAN": [(), (0, "COUNT", 1), ("BUSYLOOP",), (0, "MINLEN", 0, "COUNT", 1000)], "SCANQUEUES": [()],
    "JSCAN": [(), (0, "COUNT", 1), ("BUSYLOOP", "REPLY", "id"), ("QUEUE", "other.q"), ("QUEUE", "other.none")],
    "SCANJOBS": [()],
    "TOPIC|CREATE": [("other.q",), ("other.new",), ("team.new", "dead_letter", "other.dead")],
    "TOPIC|CONFIG": [("other.q",), ("other.none",), ("other.q", "ttl_ms", 5), ("team.q", "dead_letter", "other.dead")],
    "TOPIC|INFO": [("other.q",), ("other.none",)], "TOPIC|LIST": [(), (0, "COUNT", 1)],
    "TOPIC|PURGE": [("other.q",)], "TOPIC|DELETE": [("other.q",)],
    "DLQ|LIST": [("other.q",), ("other.dead",), ("other.none",)],
    "DLQ|REPLAY": [("other.q",), ("team.q",), ("team.q", JOB)],
    "INFO": [(), ("all",), ("clients",), ("stats", "queues"), ("commandstats",)],
    "CLIENT|LIST": [(), ("ID", "<client>")], "CLIENT|INFO": [()], "CLIENT|ID": [()], "CLIENT|SETNAME": [("a",)],
    "CLIENT|GETNAME": [()], "CLIENT|SETINFO": [("LIB-NAME", "a")],
    "CLIENT|KILL": [
        ("ID", "<client>"), ("<address>",), ("TYPE", "normal", "SKIPME", "yes"), ("USER", "default"),
        ("ADDR", "<address>"), ("MAXAGE", 1),
    ],
    "CLIENT|PAUSE": [(10_000,)], "CLIENT|UNPAUSE": [()], "CLIENT|UNBLOCK": [("<client>",), ("<client>", "ERROR")],
    "CLIENT|REPLY": [("ON",)], "CLIENT|NO-EVICT": [("ON",)], "CLIENT|NO-TOUCH": [("ON",)],
    "CLUSTER|MYID": [()], "CLUSTER|NODES": [()], "CLUSTER|INFO": [()], "CLUSTER|MEET": [("127.0.0.1", 1)],
    "CLUSTER|LEAVING": [(), ("yes",)], "CLUSTER|RESET": [(), ("SOFT",)], "CLUSTER|FORGET": [("x",)],
    "CLUSTER|SAVECONFIG": [()],
    "CONFIG": [("GET", "*"), ("SET", "requirepass", "mine"), ("RESETSTAT",)],
    "DEBUG": [("FLUSHALL",), ("SLEEP", 0)], "MONITOR": [()], "SLOWLOG": [("GET",), ("LEN",), ("RESET",)],
    "LATENCY": [("LATEST",), ("RESET",)], "BGREWRITEAOF": [()], "SHUTDOWN": [(), ("NOW",)],
    "PING": [()], "ECHO": [("a",)], "SELECT": [(0,)], "TIME": [()], "COMMAND": [("COUNT",), ()],
    "HELLO": [(), (2,)], "AUTH": [(TEAM,), ("default", TEAM)], "QUIT": [()],
    "MULTI": [()], "EXEC": [()], "DISCARD": [()], "WATCH": [("other.q",)], "UNWATCH": [()],
}  # fmt: skip
# Answers of these are about the node or the connection: what they count is not compared, only what they say.
COUNTED = {"INFO", "CLIENT", "CLUSTER", "HELLO", "TIME", "QSCAN", "SCANQUEUES", "TOPIC"}


def _subcommands(name: str) -> list[str]:
    rule = COMMANDS[name.encode()].rule
    if isinstance(rule, Rule):
        return ["JOB|PRIORITY", "JOB|EXTEND"] if name == "JOB" else [name]
    return [f"{name}|{word.decode()}" for word in rule]


def test_every_route_and_every_command_is_tried() -> None:
    """A new one fails here until it is added above, and has shown below that it keeps keys apart."""
    assert set(HTTP) == {f"{route.method} {route.path}" for route in ROUTES}
    assert set(RESP) == {each for name in COMMANDS for each in _subcommands(name.decode())}
    for table, name in (
        (client_commands._SUBCOMMANDS, b"CLIENT"),
        (cluster_commands._SUBCOMMANDS, b"CLUSTER"),
        (topic_commands._SUBCOMMANDS, b"TOPIC"),
    ):
        rules = COMMANDS[name].rule
        assert isinstance(rules, Mapping)
        assert rules.keys() == table.keys()


def test_every_rule_says_what_it_reaches() -> None:
    assert all(isinstance(route.reach, HttpReach) for route in ROUTES)
    assert all(route.needs or route.public or route.probe or route.reach is not HttpReach.SEEN for route in ROUTES)
    for name, command in COMMANDS.items():
        rules = [command.rule] if isinstance(command.rule, Rule) else list(command.rule.values())
        for rule in rules:
            assert isinstance(rule.reach, Reach), name
            assert rule.reach is not Reach.NAMES or command.key, f"{name!r} names topics, and does not say where"
            assert rule.reach not in (Reach.NAMES, Reach.JOBS, Reach.NODE) or rule.needs, name


@pytest.mark.parametrize("route", HTTP)
def test_over_http_nothing_tells_whether_another_has_anything(worlds: tuple[World, World], route: str) -> None:
    method = route.partition(" ")[0]
    for ask in HTTP[route]:
        full, bare = (ask.run(world, method) for world in worlds)
        assert full == bare, ask
        assert "secret" not in str(full), ask


@pytest.mark.parametrize("command", RESP)
def test_over_the_redis_protocol_nothing_tells_whether_another_has_anything(
    worlds: tuple[World, World], command: str
) -> None:
    words = command.split("|")
    for arguments in RESP[command]:
        answers = []
        for world in worlds:
            with Wire(world.broker.resp_port) as wire:
                assert wire("AUTH", TEAM) == Simple("OK")
                filled = [_filled(each, world) if isinstance(each, str) else each for each in arguments]
                said = _plain(repr(wire(*words, *filled)))
                answers.append(re.sub(r"[0-9a-f]{40}|\d+(\.\d+)?", "#", said) if words[0] in COUNTED else said)
        assert answers[0] == answers[1], (command, arguments)
        assert "secret" not in answers[0]
        assert "other." not in answers[0]


def test_a_watch_of_another_is_refused(worlds: tuple[World, World]) -> None:
    full, bare = worlds
    path = f"/v0/watch/{full.ids['wid']}"
    assert (full.team.get(path).status_code, bare.team.get(path).status_code) == (401, 404)


def test_a_list_of_clients_has_those_of_the_key_alone(worlds: tuple[World, World]) -> None:
    for world in worlds:
        with Wire(world.broker.resp_port) as mine, Wire(world.broker.resp_port) as operator:
            assert (mine("AUTH", TEAM), operator("AUTH", ROOT)) == (Simple("OK"), Simple("OK"))
            assert _listed(mine) == {str(mine("CLIENT", "ID"))}
            assert _listed(operator) > {str(mine("CLIENT", "ID")), str(world.theirs("CLIENT", "ID"))}


def _listed(wire: Wire) -> set[str]:
    listed = wire("CLIENT", "LIST")
    assert isinstance(listed, bytes)
    return set(re.findall(r"^id=(\d+)", listed.decode(), re.MULTILINE))


def test_a_batch_of_another_makes_none_of_ours_a_duplicate(worlds: tuple[World, World]) -> None:
    full, _ = worlds
    with Loader(full.broker.http_url, "weekly", TEAM) as loader:
        committed = loader.commit([loader.stage({"value": ["41", "42"]}, batch=0)], batch=0, topic="team.loaded")
        assert not committed["duplicate"]
        assert loader.ended(0)["published"] == 2
        assert loader.commit([], batch=0, topic="team.loaded")["duplicate"]
    read = full.team.post("/v0/topics/team.loaded/diff", json={}).json()
    assert [record["data"] for record in read["records"]] == [41, 42]


def test_all_that_the_other_has_is_as_it_was(worlds: tuple[World, World]) -> None:
    """The last of this module: after everything above was tried."""
    full, _ = worlds
    ids, web = full.ids, full.other
    assert [each["topic"] for each in web.get("/v0/topics").json()["topics"]] == [
        "other.copy", "other.dead", "other.log", "other.q",
    ]  # fmt: skip
    read = web.post("/v0/topics/other.log/diff", json={}).json()
    assert [record["data"] for record in read["records"]] == ["secret", 1, 2, 3]
    config = web.get("/v0/topics/other.q").json()
    assert (config["queue"]["ready"], config["queue"]["in_flight"]) == (1, 1)
    peeked = full.theirs("QPEEK", "other.q", 10)
    assert isinstance(peeked, list)
    assert len(peeked) == 1
    assert full.theirs("PAUSE", "other.q", "state") == Simple("none")
    assert isinstance(full.theirs("WORKING", ids["leased"]), int)
    assert full.theirs("ACKJOB", ids["leased"]) == 1
    (consumer,) = web.get("/v0/consumers").json()["consumers"]
    assert (consumer["consumer"], consumer["info"]) == ("spark", {"secret": "yes"})
    assert web.get(f"/v0/snapshots/{ids['snapshot']}/0").status_code == 200
    assert web.get("/v0/routers/other.r").json()["dest"] == "other.copy"
    with Loader(full.broker.http_url, "nightly", OTHER) as loader:
        assert loader.state(0)["state"] == "done"
        assert not loader.commit([ids["part"]], batch=1, topic="other.log")["duplicate"]
        assert loader.ended(1)["published"] == 1
    full.theirs("ADDJOB", "other.empty", "for who waits", 0)
    assert isinstance(full.waiting.reply(), list), "it was neither killed nor unblocked"


@pytest.mark.parametrize(
    ("key", "allowed", "refused"),
    [
        (
            "reader:read", [("QLEN", "q"), ("QSCAN",)],
            [("ADDJOB", "q", "x", 0), ("GETJOB", "FROM", "q"), ("CONFIG", "GET", "*"), ("TOPIC", "CREATE", "r")],
        ),
        (
            "writer:write", [("ADDJOB", "q", "x", 0)],
            [("QLEN", "q"), ("GETJOB", "FROM", "q"), ("TOPIC", "DELETE", "q"), ("SHOW", "x")],
        ),
        (
            "worker:rw", [("GETJOB", "NOHANG", "FROM", "q")],
            [("DELJOB", "x"), ("PAUSE", "q", "all"), ("DEBUG", "FLUSHALL"), ("TOPIC", "PURGE", "q")],
        ),
        (
            "admin:admin", [("CONFIG", "GET", "port")],
            [("CONFIG", "SET", "requirepass", "x"), ("MONITOR",), ("CLUSTER", "RESET"), ("SLOWLOG", "GET")],
        ),
    ],
)  # fmt: skip
def test_scopes_hold_for_commands(
    key: str, allowed: list[tuple[str | int, ...]], refused: list[tuple[str | int, ...]]
) -> None:
    with Broker(api_keys=f"{key},root") as broker, Wire(broker.resp_port) as wire:
        assert str(wire("PING")).startswith("NOAUTH")
        assert wire("AUTH", key.partition(":")[0]) == Simple("OK")
        for command in allowed:
            assert not isinstance(wire(*command), Failure), command
        for command in refused:
            assert str(wire(*command)).startswith("NOPERM "), command


def test_a_transaction_holds_no_command_that_its_key_may_not_run() -> None:
    with Broker(api_keys="team:rw:team.,root") as broker, Wire(broker.resp_port) as wire:
        assert wire("AUTH", "team") == Simple("OK")
        assert wire("MULTI") == Simple("OK")
        assert str(wire("ADDJOB", "other.q", "x", 0)).startswith("NOPERM ")
        assert wire("ADDJOB", "team.q", "x", 0) == Simple("QUEUED")
        assert str(wire("EXEC")).startswith("EXECABORT ")
        assert wire("QLEN", "team.q") == 0

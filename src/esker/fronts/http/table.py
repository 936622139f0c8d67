"""All routes of the HTTP front, in one table."""

from __future__ import annotations

from typing import Final

from esker.fronts.access import Scope
from esker.fronts.http import answers, bodies
from esker.fronts.http.endpoints import (
    bulk,
    consumers,
    deadletters,
    documents,
    loads,
    probes,
    queues,
    records,
    routers,
    snapshots,
    topics,
)
from esker.fronts.http.queries import Parameter
from esker.fronts.http.routes import HeaderTold, Reach, Route
from esker.fronts.http.schemas import Schema
from esker.fronts.http.streams import events, socket, watch, work
from esker.fronts.http.streams.columns import ARROW_MEDIA
from esker.node.planning import Plan

_PAGE: Final = (topics.PREFIX, topics.PAGE_SIZE, topics.CURSOR)
_TOPIC: Final = "/v0/topics/{topic}"
_NAMED_TOPIC: Final = (("topic", "$request.path.topic"),)
_NAMED_BATCH: Final = (("load", "$request.path.load"), ("batch", "$request.path.batch"))
_CLAIMED: Final[Schema] = {
    "node": "$request.body#/node",
    "seqs": ["$response.body#/claimed/0/$seq"],
    "lease_ids": ["$response.body#/claimed/0/lease_id"],
}
_BOTH: Final = Scope.READ | Scope.WRITE
ARROW: Final = ARROW_MEDIA.decode()


def _told(name: str, says: str) -> HeaderTold:
    return HeaderTold(name, says, {"type": "integer", "minimum": 0})


_EPOCH: Final = _told("Esker-Epoch", "of the topic: another one once it was made again")
_GAPS: Final = HeaderTold("Esker-Gaps", "what of the range is lost, as JSON: first, last, reason", {}, always=False)


def _of_topic(verb: str) -> str:
    return f"{_TOPIC}/{verb}"


ROUTES: Final[tuple[Route, ...]] = (
    # -- topics
    Route(
        method="PUT", path=_TOPIC, reach=Reach.NAMES, says="Make a topic, or give it this config.", needs=Scope.ADMIN,
        endpoint=topics.put_topic, body=bodies.ConfigBody, body_optional=True, answer=answers.TopicPutAnswer,
        statuses=(200, 201), errors=(400, 409), makes=_NAMED_TOPIC,
    ),
    Route(
        method="GET", path=_TOPIC, reach=Reach.NAMES, says="The state of a topic.", needs=Scope.READ,
        endpoint=topics.get_topic, answer=answers.TopicAnswer, query=(topics.TOUCH,), errors=(400, 404),
    ),
    Route(
        method="GET", path="/v0/topics", reach=Reach.SEEN, says="Topics in order of their names.", needs=Scope.READ,
        endpoint=topics.list_topics, answer=answers.TopicsAnswer, query=(*_PAGE, topics.TOUCH_ALL),
    ),
    Route(
        method="DELETE", path=_TOPIC, reach=Reach.NAMES,
        says="Remove a topic and the routers at its ends.", needs=Scope.DELETE,
        endpoint=topics.delete_topic, answer=answers.TopicDeletedAnswer, errors=(400, 409),
        query=(topics.IF_EMPTY,),
    ),
    # -- records
    Route(
        method="POST", path=_TOPIC, reach=Reach.NAMES, says="Write records: all of them, or none.", needs=Scope.WRITE,
        endpoint=records.write_records, body=bodies.WriteBody, answer=answers.WrittenAnswer, statuses=(200, 201),
        errors=(400, 404, 422), query=(records.RETURN_SEQS,), headers=(records.IDEMPOTENCY_KEY,), makes=_NAMED_TOPIC,
    ),
    Route(
        method="POST", path=_of_topic("diff"), reach=Reach.NAMES, says="The records behind a seq.", needs=Scope.READ,
        endpoint=records.read_diff, body=bodies.DiffBody, body_optional=True, answer=answers.DiffAnswer,
        other_media=(ARROW,), errors=(400, 404, 409, 410, 501),
    ),
    Route(
        method="POST", path=_of_topic("delete"), reach=Reach.NAMES,
        says="Delete records for good, by seq and by tag.", needs=Scope.DELETE,
        endpoint=records.delete_records, body=bodies.DeleteBody, answer=answers.RecordsDeletedAnswer,
        errors=(400, 404),
    ),
    # -- bulk
    Route(
        method="POST", path="/v0/bulk/plan", reach=Reach.SEEN,
        says="Where the records of topics are, and how far each reaches.",
        needs=Scope.READ, endpoint=bulk.make_plan, body=bulk.PlanBody, body_optional=True, answer=Plan,
        errors=(400, 501),
    ),
    Route(
        method="GET", path=_of_topic("records"), reach=Reach.NAMES,
        says="A range of a log, as an Arrow stream.", needs=Scope.READ,
        stream=bulk.read_records, media=ARROW, errors=(400, 404, 406, 409, 410, 501),
        query=bulk.RANGE, told=(_EPOCH, _told("Esker-To", "the offset behind the last"), _GAPS),
    ),
    Route(
        method="GET", path=_of_topic("records/file"), reach=Reach.NAMES,
        says="The next records of a range, as a file of the node.",
        needs=Scope.READ, endpoint=bulk.make_file, answer=bulk.FileAnswer, errors=(400, 404, 409, 410, 501),
        query=bulk.RANGE,
    ),
    Route(
        method="POST", path=_of_topic("snapshots"), reach=Reach.NAMES,
        says="Take a snapshot of the jobs of a queue.", needs=Scope.READ,
        endpoint=snapshots.take_snapshot, body=snapshots.SnapshotBody, body_optional=True,
        answer=snapshots.SnapshotAnswer, statuses=(201,), errors=(400, 404, 409, 501, 507),
        makes=(("snapshot", "$response.body#/snapshot"), ("chunk", "0")),
    ),
    Route(
        method="GET", path="/v0/snapshots/{snapshot}/{chunk}", reach=Reach.OWNED,
        says="A chunk of a snapshot, as an Arrow stream.",
        needs=Scope.READ, stream=snapshots.read_chunk, media=ARROW, errors=(400, 404, 406, 501, 507),
    ),
    Route(
        method="GET", path="/v0/snapshots/{snapshot}/{chunk}/file", reach=Reach.OWNED,
        says="Where a chunk of a snapshot lies.",
        needs=Scope.READ, endpoint=snapshots.chunk_file, answer=snapshots.ChunkFileAnswer, errors=(400, 404, 507),
    ),
    Route(
        method="DELETE", path="/v0/snapshots/{snapshot}", reach=Reach.OWNED,
        says="Forget a snapshot: its files go.", needs=Scope.READ,
        endpoint=snapshots.delete_snapshot, answer=snapshots.SnapshotDeletedAnswer, errors=(404,),
    ),
    Route(
        method="GET", path="/v0/events", reach=Reach.SEEN,
        says="The history of events, as an Arrow stream.", needs=Scope.READ,
        stream=events.read_events, media=ARROW, errors=(400, 406, 410, 501),
        told=(_told("Esker-From", "the first position"), _told("Esker-To", "the position behind the last")),
        query=(events.FROM, events.TO, events.WANTED_COLUMNS, events.WANTED_TOPICS, events.WANTED_KINDS),
    ),
    # -- queues
    Route(
        method="POST", path=_of_topic("claim"), reach=Reach.NAMES, says="Lease jobs of a queue.", needs=_BOTH,
        endpoint=queues.claim_jobs, body=bodies.ClaimBody, answer=answers.ClaimedAnswer, errors=(400, 404, 409),
        makes=_NAMED_TOPIC,
        hands=(("ack_jobs", _CLAIMED), ("nack_jobs", _CLAIMED), ("extend_leases", {**_CLAIMED, "lease_ms": 30_000})),
    ),
    Route(
        method="POST", path=_of_topic("ack"), reach=Reach.NAMES,
        says="Jobs are done: they go for good.", needs=Scope.WRITE,
        endpoint=queues.ack_jobs, body=bodies.AckBody, answer=answers.AckedAnswer, errors=(400, 404, 409),
    ),
    Route(
        method="POST", path=_of_topic("nack"), reach=Reach.NAMES, says="Give jobs back.", needs=Scope.WRITE,
        endpoint=queues.nack_jobs, body=bodies.NackBody, answer=answers.NackedAnswer, errors=(400, 404, 409),
    ),
    Route(
        method="POST", path=_of_topic("extend"), reach=Reach.NAMES, says="Hold jobs longer.", needs=Scope.WRITE,
        endpoint=queues.extend_leases, body=bodies.ExtendBody, answer=answers.ExtendedAnswer, errors=(400, 404, 409),
    ),
    Route(
        method="POST", path=_of_topic("replay"), reach=Reach.NAMES, says="Send dead letters back where they came from.",
        needs=Scope.ADMIN, endpoint=deadletters.replay_letters, body=bodies.ReplayBody, answer=answers.ReplayedAnswer,
        errors=(400, 404),
    ),
    # -- routers
    Route(
        method="PUT", path="/v0/routers/{router}", reach=Reach.NAMES,
        says="Make a router, or give it these options.", needs=Scope.ADMIN,
        endpoint=routers.put_router, body=bodies.RouterBody, answer=answers.RouterAnswer, statuses=(200, 201),
        errors=(400, 404, 409), makes=(("router", "$request.path.router"),),
    ),
    Route(
        method="GET", path="/v0/routers/{router}", reach=Reach.NAMES,
        says="A router, and how many records it has forwarded.",
        needs=Scope.READ, endpoint=routers.get_router, answer=answers.RouterAnswer, errors=(400, 404),
    ),
    Route(
        method="GET", path="/v0/routers", reach=Reach.SEEN, says="Routers in order of their names.", needs=Scope.READ,
        endpoint=routers.list_routers, answer=answers.RoutersAnswer,
        query=(
            *_PAGE,
            Parameter("source", "only those from this topic"),
            Parameter("dest", "only those into this topic"),
        ),
    ),
    Route(
        method="DELETE", path="/v0/routers/{router}", reach=Reach.NAMES,
        says="Remove a router; its copies stay.", needs=Scope.DELETE,
        endpoint=routers.delete_router, answer=answers.RouterDeletedAnswer,
    ),
    # -- streams
    Route(
        method="POST", path="/v0/watch", reach=Reach.NAMES, says="Begin to watch topics.", needs=Scope.READ,
        endpoint=watch.watch, body=watch.WatchBody, answer=watch.WatchAnswer, errors=(400, 404),
        makes=(("wid", "$response.body#/wid"),),
        query=(watch.LENIENT,),
    ),
    Route(
        method="GET", path="/v0/watch/{wid}", reach=Reach.OWNED, says="The records of a watch, as server-sent events.",
        stream=watch.stream, token_in_query=True, media="text/event-stream", errors=(404, 406),
    ),
    Route(
        method="GET", path=_of_topic("work"), reach=Reach.NAMES,
        says="Jobs for a worker, as server-sent events.", needs=_BOTH,
        stream=work.work, token_in_query=True, media="text/event-stream", errors=(400, 404, 406, 409),
        query=(work.NODE, work.MAX, work.LEASE_MS),
    ),
    Route(
        method="WEBSOCKET", path="/v0/ws", reach=Reach.NAMES,
        says="A WebSocket to follow topics and to write.", stream=socket.socket,
        statuses=(101,), errors=(400,),
    ),
    # -- consumers elsewhere
    Route(
        method="POST", path="/v0/consumers/{consumer}", reach=Reach.OWNED,
        says="Tell how far a consumer has come.", needs=Scope.READ,
        endpoint=consumers.report_consumer, body=consumers.ConsumerBody, answer=consumers.ConsumerAnswer,
    ),
    Route(
        method="GET", path="/v0/consumers", reach=Reach.SEEN,
        says="Consumers that reported in the last hour, and their lag.",
        needs=Scope.READ, endpoint=consumers.list_consumers, answer=consumers.ConsumersAnswer, errors=(),
    ),
    # -- bulk loads
    Route(
        method="POST", path="/v0/loads/{load}/{batch}/commit", reach=Reach.OWNED,
        says="Publish the staged parts, each row exactly once.",
        needs=Scope.WRITE, endpoint=loads.commit_batch, body=loads.CommitBody, answer=loads.LoadAnswer,
        statuses=(202,), errors=(400, 404, 409, 501, 507), makes=_NAMED_BATCH,
    ),
    Route(
        method="PUT", path="/v0/loads/{load}/{batch}/{part}", reach=Reach.OWNED,
        says="Stage a part of a load, as an Arrow stream.",
        needs=Scope.WRITE, endpoint=loads.stage_part, answer=loads.StagedAnswer, statuses=(201,),
        upload=ARROW, errors=(400, 409, 413, 501, 507), makes=_NAMED_BATCH,
        hands=(("commit_batch", {"parts": ["$response.body#/staged"], "topic": "loaded"}),),
        query=(loads.ATTEMPT, loads.TOPIC, loads.TYPE, loads.VALUE_FORMAT),
    ),
    Route(
        method="GET", path="/v0/loads/{load}/{batch}", reach=Reach.OWNED,
        says="How far a batch of a load is.", needs=Scope.WRITE,
        endpoint=loads.get_batch, answer=loads.LoadAnswer,
        query=(loads.WAIT_MS,),
    ),
    Route(
        method="DELETE", path="/v0/loads/{load}/{batch}", reach=Reach.OWNED,
        says="Drop the staged parts of a batch.", needs=Scope.WRITE,
        endpoint=loads.abort_batch, answer=loads.AbortedAnswer, errors=(400, 409),
    ),
    # -- the node
    *(
        Route(
            method="GET", path=path, reach=Reach.NOTHING, says="Alive.", probe=True, endpoint=probes.get_health,
            answer=answers.HealthAnswer, errors=(),
        )
        for path in ("/v0/health", "/healthz")
    ),
    *(
        Route(
            method="GET", path=path, reach=Reach.NOTHING, says="Serving.", probe=True, endpoint=probes.get_ready,
            answer=answers.ReadyAnswer, errors=(503,),
        )
        for path in ("/v0/ready", "/readyz")
    ),
    *(
        Route(
            method="GET", path=path, reach=Reach.SEEN,
            says="Numbers: as text for Prometheus, or as OpenMetrics or JSON if Accept says so.",
            needs=Scope.READ, endpoint=probes.get_metrics, media="text/plain",
            other_media=("application/openmetrics-text", "application/json"), errors=(),
        )
        for path in ("/v0/metrics", "/metrics")
    ),
    Route(
        method="GET", path="/openapi.json", reach=Reach.NOTHING, says="This API, for programs.", public=True, errors=(),
        endpoint=documents.get_openapi,
    ),
    Route(
        method="GET", path="/docs", reach=Reach.NOTHING, says="This API, for people.", public=True, errors=(),
        endpoint=documents.get_docs, media="text/html",
    ),
)  # fmt: skip

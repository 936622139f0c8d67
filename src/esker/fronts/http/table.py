"""All routes of the HTTP front, in one table."""

from __future__ import annotations

from typing import Final

from esker.fronts.access import Scope
from esker.fronts.http import answers, bodies
from esker.fronts.http.endpoints import consumers, documents, probes, queues, records, routers, topics
from esker.fronts.http.routes import Parameter, Route
from esker.fronts.http.streams import socket, watch, work

_TOUCH = Parameter("touch", "boolean", "count this as a consumption, which raises the topic's priority")
_TOKEN = Parameter("token", "string", "the key, for clients that cannot set a header")
_PAGE: Final = (
    Parameter("prefix", "string", "only names that begin so"),
    Parameter("page_size", "integer", "how many, 1 to 1000", 100),
    Parameter("cursor", "string", "next_cursor of the page before"),
)
_TOPIC: Final = "/v0/topics/{topic}"
_BOTH: Final = Scope.READ | Scope.WRITE


def _of_topic(verb: str) -> str:
    return f"{_TOPIC}/{verb}"


ROUTES: Final[tuple[Route, ...]] = (
    # -- topics
    Route(
        method="PUT", path=_TOPIC, says="Make a topic, or give it this config.", needs=Scope.ADMIN,
        endpoint=topics.put_topic, body=bodies.ConfigBody, body_optional=True, answer=answers.TopicPutAnswer,
        statuses=(200, 201), errors=(400, 409),
    ),
    Route(
        method="GET", path=_TOPIC, says="The state of a topic.", needs=Scope.READ,
        endpoint=topics.get_topic, answer=answers.TopicAnswer, query=(_TOUCH,), errors=(400, 404),
    ),
    Route(
        method="GET", path="/v0/topics", says="Topics in order of their names.", needs=Scope.READ,
        endpoint=topics.list_topics, answer=answers.TopicsAnswer, query=(*_PAGE, _TOUCH),
    ),
    Route(
        method="DELETE", path=_TOPIC, says="Remove a topic and the routers at its ends.", needs=Scope.DELETE,
        endpoint=topics.delete_topic, answer=answers.TopicDeletedAnswer, errors=(400, 409),
        query=(Parameter("if_empty", "boolean", "refuse when it holds anything", False),),
    ),
    # -- records
    Route(
        method="POST", path=_TOPIC, says="Write records: all of them, or none.", needs=Scope.WRITE,
        endpoint=records.write_records, body=bodies.WriteBody, answer=answers.WrittenAnswer, statuses=(200, 201),
        errors=(400, 404, 422), query=(Parameter("return_seqs", "boolean", "list every seq", True),),
    ),
    Route(
        method="POST", path=_of_topic("diff"), says="The records behind a seq.", needs=Scope.READ,
        endpoint=records.read_diff, body=bodies.DiffBody, body_optional=True, answer=answers.DiffAnswer,
        errors=(400, 404),
    ),
    Route(
        method="POST", path=_of_topic("delete"), says="Delete records for good, by seq and by tag.", needs=Scope.DELETE,
        endpoint=records.delete_records, body=bodies.DeleteBody, answer=answers.RecordsDeletedAnswer,
        errors=(400, 404),
    ),
    # -- queues
    Route(
        method="POST", path=_of_topic("claim"), says="Lease jobs of a queue.", needs=_BOTH,
        endpoint=queues.claim_jobs, body=bodies.ClaimBody, answer=answers.ClaimedAnswer, errors=(400, 404, 409),
    ),
    Route(
        method="POST", path=_of_topic("ack"), says="Jobs are done: they go for good.", needs=Scope.WRITE,
        endpoint=queues.ack_jobs, body=bodies.AckBody, answer=answers.AckedAnswer, errors=(400, 404, 409),
    ),
    Route(
        method="POST", path=_of_topic("nack"), says="Give jobs back.", needs=Scope.WRITE,
        endpoint=queues.nack_jobs, body=bodies.NackBody, answer=answers.NackedAnswer, errors=(400, 404, 409),
    ),
    Route(
        method="POST", path=_of_topic("extend"), says="Hold jobs longer.", needs=Scope.WRITE,
        endpoint=queues.extend_leases, body=bodies.ExtendBody, answer=answers.ExtendedAnswer, errors=(400, 404, 409),
    ),
    # -- routers
    Route(
        method="PUT", path="/v0/routers/{router}", says="Make a router, or give it these options.", needs=Scope.ADMIN,
        endpoint=routers.put_router, body=bodies.RouterBody, answer=answers.RouterAnswer, statuses=(200, 201),
        errors=(400, 404, 409),
    ),
    Route(
        method="GET", path="/v0/routers/{router}", says="A router, and how many records it has forwarded.",
        needs=Scope.READ, endpoint=routers.get_router, answer=answers.RouterAnswer, errors=(400, 404),
    ),
    Route(
        method="GET", path="/v0/routers", says="Routers in order of their names.", needs=Scope.READ,
        endpoint=routers.list_routers, answer=answers.RoutersAnswer,
        query=(
            *_PAGE,
            Parameter("source", "string", "only those from this topic"),
            Parameter("dest", "string", "only those into this topic"),
        ),
    ),
    Route(
        method="DELETE", path="/v0/routers/{router}", says="Remove a router; its copies stay.", needs=Scope.DELETE,
        endpoint=routers.delete_router, answer=answers.RouterDeletedAnswer,
    ),
    # -- streams
    Route(
        method="POST", path="/v0/watch", says="Begin to watch topics.", needs=Scope.READ,
        endpoint=watch.watch, body=watch.WatchBody, answer=watch.WatchAnswer, errors=(400, 404),
        query=(Parameter("lenient", "boolean", "leave out topics that do not exist", False),),
    ),
    Route(
        method="GET", path="/v0/watch/{wid}", says="The records of a watch, as server-sent events.",
        stream=watch.stream, token_in_query=True, media="text/event-stream", errors=(404, 406), query=(_TOKEN,),
    ),
    Route(
        method="GET", path=_of_topic("work"), says="Jobs for a worker, as server-sent events.", needs=_BOTH,
        stream=work.work, token_in_query=True, media="text/event-stream", errors=(400, 404, 406, 409),
        query=(
            Parameter("node", "string", "who works", required=True),
            Parameter("max", "integer", "jobs outstanding at a time", 1),
            Parameter("lease_ms", "integer", "how long a job is leased; else the topic's"),
            _TOKEN,
        ),
    ),
    Route(
        method="WEBSOCKET", path="/v0/ws", says="A WebSocket to follow topics and to write.", stream=socket.socket,
        statuses=(101,), errors=(),
    ),
    # -- consumers elsewhere
    Route(
        method="POST", path="/v0/consumers/{consumer}", says="Tell how far a consumer has come.", needs=Scope.READ,
        endpoint=consumers.report_consumer, body=consumers.ConsumerBody, answer=consumers.ConsumerAnswer,
    ),
    Route(
        method="GET", path="/v0/consumers", says="Consumers that reported in the last hour, and their lag.",
        needs=Scope.READ, endpoint=consumers.list_consumers, answer=consumers.ConsumersAnswer, errors=(),
    ),
    # -- the node
    *(
        Route(
            method="GET", path=path, says="Alive.", probe=True, endpoint=probes.get_health,
            answer=answers.HealthAnswer, errors=(),
        )
        for path in ("/v0/health", "/healthz")
    ),
    *(
        Route(
            method="GET", path=path, says="Serving.", probe=True, endpoint=probes.get_ready,
            answer=answers.ReadyAnswer, errors=(503,),
        )
        for path in ("/v0/ready", "/readyz")
    ),
    *(
        Route(
            method="GET", path=path, says="Numbers: Prometheus's text, or JSON if that is what Accept says.",
            needs=Scope.READ, endpoint=probes.get_metrics, media="text/plain", errors=(),
        )
        for path in ("/v0/metrics", "/metrics")
    ),
    Route(
        method="GET", path="/openapi.json", says="This API, for programs.", public=True, errors=(),
        endpoint=documents.get_openapi,
    ),
    Route(
        method="GET", path="/docs", says="This API, for people.", public=True, errors=(),
        endpoint=documents.get_docs, media="text/html",
    ),
)  # fmt: skip

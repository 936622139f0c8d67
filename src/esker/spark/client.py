"""The HTTP client of drivers and tasks: pools of connections, bounded retries, streams that notice when they are cut.

One client a process and connection, kept between the batches of a stream; nothing connects before it is used. Every
request may be sent twice without harm (that is how the broker's bulk API is made), so a lost connection or a busy
broker is simply tried again, at the next endpoint, until `retryTimeoutMs` is over.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import HTTPError, ProtocolError

from esker.spark.errors import Refused, Unreachable
from esker.spark.options import Connection
from esker.spark.workers import of_spark

ARROW: Final = "application/vnd.apache.arrow.stream"
CONNECT_S: Final = 5.0
SILENCE_S: Final = 90.0  # longer than any answer of the broker is silent; then the connection is taken for dead
ANSWER_BYTES_MAX: Final = 256 << 20
PAUSE_MIN_S, PAUSE_MAX_S = 0.05, 2.0
IDLE_S: Final = 0.1  # between two looks for news, where the last found none
_BUSY: Final = frozenset({429, 502, 503, 504})
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"

_log = logging.getLogger("esker.spark")

_T = TypeVar("_T")
Query = Mapping[str, object]


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: dict[str, object]


class Cut(Exception):
    """A stream ended before its end; what came so far is good. `Client.resumed` asks for the rest."""


class Client:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._best = 0  # the endpoint that answered last
        self._pool = urllib3.PoolManager(
            maxsize=4,
            retries=False,
            timeout=urllib3.Timeout(connect=CONNECT_S, read=SILENCE_S),
        )

    def ask(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: object = None,
        media: str = "application/json",
    ) -> Answer:
        """One answer, read whole. Raises Refused or Unreachable. A body of bytes goes as it is, others as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()

        def attempt(endpoint: str) -> Answer:
            response = self._send(endpoint, method, path, query, data, media)
            try:
                text = response.read(ANSWER_BYTES_MAX)
            finally:
                response.release_conn()
            return Answer(response.status, dict(response.headers), _parsed(text))

        return self._try(f"{method} {path}", attempt)

    @contextmanager
    def stream(self, path: str, query: Query | None = None) -> Iterator[ArrowBytes]:
        """An Arrow stream as a file. Raises Refused or Unreachable before the first byte, Cut while it is read."""

        def attempt(endpoint: str) -> urllib3.BaseHTTPResponse:
            return self._send(endpoint, "GET", path, query, None, None)

        response = self._try(f"GET {path}", attempt)
        body = ArrowBytes(response)
        try:
            yield body
        finally:
            # A stream that was read to its end gives its connection back; that of another is worth nothing any more.
            if not (body.at_end and _drained(response)):
                response.close()
            response.release_conn()

    def retrying(self) -> Patience:
        return Patience(self._connection.retry_ms)

    def _send(
        self, endpoint: str, method: str, path: str, query: Query | None, body: bytes | None, media: str | None
    ) -> urllib3.BaseHTTPResponse:
        headers = {"accept": ARROW if media is None else "application/json"}
        if media is not None and body is not None:
            headers["content-type"] = media
        if self._connection.api_key is not None:
            headers["authorization"] = f"Bearer {self._connection.api_key}"
        told = {key: value for key, value in (query or {}).items() if value is not None}
        url = f"{endpoint}{path}?{urlencode(told)}" if told else endpoint + path
        response = self._pool.urlopen(
            method, url, body=body, headers=headers, redirect=False, preload_content=False, decode_content=False
        )
        if response.status >= 300:
            try:
                text = response.read(1 << 20)
            finally:
                response.release_conn()
            raise _refused(response.status, text, f"{method} {path}", endpoint)
        return response

    def _try(self, what: str, attempt: Callable[[str], _T]) -> _T:
        endpoints = self._connection.endpoints
        patience = self.retrying()
        while True:
            endpoint = endpoints[self._best % len(endpoints)]
            try:
                return attempt(endpoint)
            except Refused as refused:
                if refused.status not in _BUSY or not patience.pause():
                    raise
                _log.info("%s: %s; trying again", what, refused)
            except (HTTPError, OSError) as error:
                self._best = (self._best + 1) % len(endpoints)
                if not patience.pause():
                    tried = ", ".join(endpoints)
                    raise Unreachable(
                        f"option endpoint: no broker answers at {tried} ({_plain(error)}); "
                        f"tried {patience.tries} times in {patience.spent_s:.1f} s"
                    ) from None


class Patience:
    """How often something is tried: pauses that grow, with jitter, until the time is over. Progress starts it anew."""

    def __init__(self, retry_ms: int) -> None:
        self._retry_s = retry_ms / 1000
        self._started = time.monotonic()
        self.tries = 1

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self._started

    def renew(self) -> None:
        self._started = time.monotonic()
        self.tries = 1

    def pause(self) -> bool:
        """Waits a little; False: it has been long enough."""
        pause_s = min(PAUSE_MAX_S, PAUSE_MIN_S * 2**self.tries) * random.uniform(0.5, 1.0)
        if self.spent_s + pause_s > self._retry_s:
            return False
        self.tries += 1
        time.sleep(pause_s)
        return True


class Pace:
    """Spark asks an idle stream for news a hundred times a second. Nobody needs to know it that soon, so the broker is
    asked less often while there is nothing."""

    def __init__(self) -> None:
        self._asked_at = 0.0

    def wait(self, idle: bool) -> None:
        left_s = self._asked_at + IDLE_S - time.monotonic()
        if idle and left_s > 0:
            time.sleep(left_s)
        self._asked_at = time.monotonic()


class ArrowBytes:
    """The body of an answer as a file for pyarrow, which would take a connection that breaks between two batches for
    the end of the stream. So the last bytes are remembered: a whole stream ends with Arrow's mark."""

    closed = False

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self._tail = b""
        self.headers: Mapping[str, str] = response.headers

    def read(self, size: int | None = None) -> bytes:
        try:
            data = self._response.read(size)
        except (HTTPError, OSError) as error:
            raise Cut(_plain(error)) from None
        if len(data) >= len(_END_OF_STREAM):
            self._tail = data[-len(_END_OF_STREAM) :]
        elif data:
            self._tail = (self._tail + data)[-len(_END_OF_STREAM) :]
        return data

    @property
    def at_end(self) -> bool:
        return self._tail == _END_OF_STREAM

    def check_end(self) -> None:
        """To be called when pyarrow sees no more batches. Raises Cut unless it was the end."""
        if not self.at_end:
            raise Cut("the stream ended without its end mark")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        """The client closes the response."""


def client(connection: Connection) -> Client:
    """The client of this process for a connection."""
    key = (os.getpid(), connection)
    with _lock:
        if key not in _clients:
            if len(_clients) >= _CLIENTS_MAX:
                _clients.clear()
            _clients[key] = Client(connection)
            _settle()
        return _clients[key]


def _settle() -> None:
    """In a process of Spark's own, which collects garbage after every task and every plan. With everything that is
    imported by now that takes 25 ms, most of what a small task takes; frozen, it is not looked at again."""
    if of_spark() is not None:
        gc.freeze()


def name_in_path(name: str) -> str:
    return quote(name, safe="")


_CLIENTS_MAX = 16
_clients: dict[tuple[int, Connection], Client] = {}
_lock = threading.Lock()


def _drained(response: urllib3.BaseHTTPResponse) -> bool:
    """Reads what is left behind Arrow's end mark, which is the end of the body and nothing else."""
    try:
        return response.read(1) == b""
    except (HTTPError, OSError):
        return False


def _parsed(text: bytes) -> dict[str, object]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        raise ProtocolError(f"an answer that is no JSON: {text[:80]!r}") from None
    return found if isinstance(found, dict) else {"answer": found}


def _refused(status: int, text: bytes, what: str, endpoint: str) -> Refused:
    try:
        error = json.loads(text)["error"]
        code, message, detail = str(error["code"]), str(error["message"]), error.get("detail")
    except (ValueError, KeyError, TypeError):
        return Refused(f"{what}: status {status} from {endpoint}, which does not look like Esker's", status)
    message = " ".join(message.split())
    if status == 401:
        return Refused(f"option apiKey: {endpoint} does not know the key ({message})", status, code)
    if status == 403:
        return Refused(f"option apiKey: the key may not do this ({message})", status, code)
    return Refused(f"{message} ({code})", status, code, detail if isinstance(detail, dict) else None)


def _plain(error: BaseException) -> str:
    """What happened, without the addresses of objects that urllib3 puts in."""
    text = str(error.__cause__ or error.__context__ or error) if isinstance(error, HTTPError) else str(error)
    return " ".join(text.rpartition("object at ")[2].partition(": ")[2].split() or text.split()) or type(error).__name__

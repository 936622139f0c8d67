"""Columns to a client: an Arrow stream as the body of an answer.

The first piece is made before the head leaves, so that what goes wrong until then is told with a status. From then on
only the end can tell: a whole stream ends with Arrow's end mark and with the last chunk of HTTP, and one that is cut
has neither, so a client always knows. It asks again from where it got to.

The next piece is made while the last is on its way, and never one more: a slow reader holds two pieces, and one that
takes nothing for some time is cut (outlets.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final

import structlog

from esker.errors import EskerError
from esker.fronts.http.calls import Call
from esker.fronts.http.errors import Header, HttpError, throttled
from esker.fronts.http.streams.outlets import Outlet, ReaderStalled

ARROW_MEDIA: Final = b"application/vnd.apache.arrow.stream"
_LIBRARY: Final = "esker.columns.records"
_NEEDED: Final = ("pyarrow", "numpy")
STREAMS_MAX: Final = 64  # under way at a time: each may hold two chunks of some 4 MiB

_diagnostics = structlog.get_logger("esker.http")


def accepts_arrow(call: Call, asked: bool = False) -> bool:
    """Whether the client takes Arrow; with `asked`, whether it says so by name."""
    accept = call.header(b"accept")
    if accept is None:
        return not asked
    listed = accept.lower()
    return ARROW_MEDIA in listed or (not asked and (b"*/*" in listed or b"application/*" in listed))


async def need_arrow(call: Call) -> None:
    """Raises 406 when the client wants something else, and 501 where Arrow is not installed."""
    if not accepts_arrow(call):
        raise HttpError(406, "not_acceptable", f"these are columns: accept {ARROW_MEDIA.decode()}, or anything")
    await need_columns()


async def need_columns() -> None:
    """Loads what columns are made with, in a thread: the first time takes half a second. Raises 501 without it."""
    if _LIBRARY in sys.modules:
        return
    if any(find_spec(name) is None for name in _NEEDED):
        raise HttpError(501, "not_available", "this node has no Arrow: pip install 'esker[archive]' and restart it")
    await asyncio.get_running_loop().run_in_executor(None, import_module, _LIBRARY)


async def stream_arrow(call: Call, headers: Sequence[Header], chunks: AsyncIterator[bytes]) -> None:
    """Sends `chunks`, which together are one whole Arrow stream; each leaves behind the gate.

    What `chunks` raises before its first piece is raised here, and can still be told; later, the stream is cut.
    """
    streams = call.front.streams
    if streams.columns_open >= STREAMS_MAX:
        raise throttled(f"{STREAMS_MAX} streams of columns are open already; that is the most")
    with streams.admitted(call) as outlet:
        streams.columns_open += 1
        try:
            await _run(call, outlet, headers, chunks)
        except ReaderStalled:
            return  # it asks again when it is ready
        except EskerError as error:
            if not call.started:
                raise
            _diagnostics.warning("stream of columns cut", path=call.path, why=str(error))
        finally:
            streams.columns_open -= 1


async def _run(call: Call, outlet: Outlet, headers: Sequence[Header], chunks: AsyncIterator[bytes]) -> None:
    gone = asyncio.ensure_future(call.left())
    coming: asyncio.Future[bytes | None] = asyncio.ensure_future(_next(chunks))
    try:
        while not gone.done() and not outlet.streams.stopping:
            await asyncio.wait((coming, gone), return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                return
            piece = coming.result()
            await outlet.depart()
            if not call.started:
                call.started = True
                head = [(b"content-type", ARROW_MEDIA), (b"cache-control", b"no-store"), *headers]
                await outlet.send({"type": "http.response.start", "status": 200, "headers": head})
            if piece is None:
                await outlet.end()
                return
            coming = asyncio.ensure_future(_next(chunks))
            await outlet.push(piece)
    finally:
        gone.cancel()
        coming.cancel()
        with contextlib.suppress(asyncio.CancelledError, EskerError):  # who asked is told already, or not there
            await coming
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)

"""A real broker inside the test process: its own thread and event loop, real ports, a real data directory.

    with Broker() as broker:
        client = redis.Redis(port=broker.resp_port)
        web = httpx.Client(base_url=broker.http_url)

Nothing is simulated: it is the node that `esker serve` runs. `restart` stops and starts it on the same data.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from types import TracebackType

import uvloop

from esker.fronts.access import KeyRing
from esker.fronts.http.options import HttpOptions
from esker.fronts.http.server import HttpServer
from esker.fronts.resp.options import RespOptions
from esker.fronts.resp.server import RespServer
from esker.journal.disk import Disk
from esker.node.runtime import Node
from esker.node.settings import Settings


class Broker:
    """`settings` are the names and texts that `esker serve --set` takes; `data` and ports are chosen here.

    `disk` is what the journal writes to: give it a `FaultyDisk` to see what your system makes of a bad one.
    """

    def __init__(
        self,
        data: str | None = None,
        options: RespOptions | None = None,
        disk: Disk | None = None,
        **settings: str,
    ) -> None:
        self._scratch = None if data is not None else tempfile.TemporaryDirectory(prefix="esker-")
        self.data = data if data is not None else f"{self._scratch.name}/data" if self._scratch is not None else ""
        self._options = options
        self._disk = disk
        self._texts = settings
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._failures: list[BaseException] = []  # of the broker's thread
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node: Node | None = None
        self.resp_port = 0
        self.http_port = 0

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def start(self) -> Broker:
        """Raises what kept the node from starting."""
        self._ready.clear()
        self._failures.clear()
        self._thread = threading.Thread(target=self._run, name="esker-broker", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failures:
            self._thread.join()
            raise self._failures[0]
        return self

    def stop(self) -> None:
        """Stops in order; raises what went wrong meanwhile."""
        if self._thread is None:
            return
        if self._loop is not None and self._node is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._node.shutdown)
        self._thread.join()
        self._thread = None
        if self._failures:
            raise self._failures[0]

    def restart(self) -> None:
        self.stop()
        self.start()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            if self._scratch is not None:
                self._scratch.cleanup()

    def _run(self) -> None:
        try:
            uvloop.run(self._serve())
        except BaseException as error:  # noqa: BLE001 it is raised again, on the thread that started the broker
            self._failures.append(error)
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        settings = Settings(data=self.data)
        for name, text in self._texts.items():
            settings.set(name, text)
        self._node = Node(settings, self._disk)
        self._loop = asyncio.get_running_loop()
        keys = KeyRing.parse(settings.api_keys, settings.password)
        resp = RespServer(self._node, self._options, keys)
        http = HttpServer(self._node, HttpOptions.of(settings), keys)
        try:
            await resp.start("127.0.0.1", 0)
            await http.start("127.0.0.1", 0)
            self.resp_port, self.http_port = resp.port, http.port
            self._ready.set()
            await self._node.stop_asked.wait()
        finally:
            await http.close()
            await resp.close()
            await self._node.close()

"""RocksDB without a file descriptor to write with: it reads on, and writes again once it is opened again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

STARVED = """
import os, resource, sys
from pathlib import Path
from esker.errors import StoreFailed
from esker.store.rocksdb import RocksStore


def fails(step):
    try:
        step()
    except StoreFailed as error:
        return str(error)
    return ""


store = RocksStore(Path(sys.argv[1]))
store.write([(b"kept %d" % number, b"x" * 100) for number in range(500)])
store.persist()
view = store.snapshot()
assert view.get(b"kept 1") == b"x" * 100
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
while True:
    try:
        held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        break
lost = [(b"lost %d" % number, b"y" * 100) for number in range(500)]
assert store.write(lost)
assert "Too many open files" in fails(store.persist)
assert "Too many open files" in fails(lambda: store.write(lost)), "it takes nothing more"
tries = 0
while fails(store.reopen):
    tries += 1
    assert store.get(b"kept 1") == b"x" * 100, "reads go on"
    assert len(list(store.scan(b"kept", b"kepu"))) == 500
    assert fails(lambda: store.write(lost)), "nothing is taken before it is open again"
    os.close(held.pop())
assert tries
assert "start it again" in fails(lambda: view.get(b"kept 1"))
assert "start it again" in fails(lambda: view.scan(b"a", b"z"))
assert store.write(lost)
store.persist()
assert store.snapshot().get(b"lost 1") == b"y" * 100
store.close()
store = RocksStore(Path(sys.argv[1]))
assert len(list(store.scan(b"", b"z"))) == 1000
store.close()
print("tries", tries)
"""


def test_a_store_without_descriptors_reads_on_and_writes_again_after_reopen(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARVED, str(tmp_path / "store")],
        env=os.environ, timeout=60, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) > 1, "it met a lack of descriptors at more than one step of opening"

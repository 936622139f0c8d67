"""A session finds what it needs, or says what is missing; the documents name every option."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pyspark.daemon
import pytest

from esker.spark import options
from esker.spark.home import light_home
from esker.spark.session import settings_for
from esker.spark.workers import end_quietly, of_spark

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_light_home_links_everything_but_the_zipped_copy(tmp_path: Path) -> None:
    package = tmp_path / "pyspark"
    for name in ("bin", "jars", "python"):
        (package / name).mkdir(parents=True)
    home = light_home(package, tmp_path / "cache")
    assert home == light_home(package, tmp_path / "cache"), "made once"
    assert home is not None
    assert {link.name for link in home.iterdir()} == {"bin", "jars"}


def test_a_home_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert light_home(tmp_path, tmp_path / "file") is None


def test_a_cluster_keeps_its_own_settings() -> None:
    assert settings_for("spark://somewhere:7077", quiet=True) == {}
    assert "spark.sql.streaming.checkpointFileManagerClass" in settings_for("local[2]", quiet=False)


def test_every_option_is_documented() -> None:
    text = DOCUMENT.read_text()
    assert [name for name in options.NAMES if f"`{name}`" not in text] == []


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "urllib3"])
def test_the_package_can_be_imported_without_spark(missing: str) -> None:
    """The command line lists pipelines where Spark is not installed."""
    code = f"import sys; sys.modules[{missing!r}] = None; import esker.spark, esker.spark.options"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_session_without_spark_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from esker.spark import EskerSparkError, session\n"
        "try:\n    session()\nexcept EskerSparkError as error:\n    sys.stdout.write(str(error))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert ran.stdout == "PySpark is missing: pip install 'esker[spark]'"


def test_a_worker_whose_connection_was_closed_ends_without_a_traceback() -> None:
    """Spark closes it when it has what it needs. Other errors are still shown."""
    ours, theirs = socket.socketpair()
    theirs.close()

    def flushing(sock: socket.socket, authenticated: bool) -> int:
        sock.sendall(b"bytes that nobody waits for")
        return 0

    def failing(sock: socket.socket, authenticated: bool) -> int:
        raise RuntimeError("ours")

    daemon = ModuleType("__main__")
    with ours:
        for worker in (flushing, failing):
            daemon.__dict__["worker"] = worker
            with pytest.raises((BrokenPipeError, RuntimeError)):
                daemon.worker(ours, True)
            end_quietly(daemon)
            if worker is flushing:
                assert daemon.worker(ours, True) == 1
            else:
                with pytest.raises(RuntimeError, match="ours"):
                    daemon.worker(ours, True)
    end_quietly(None)
    assert of_spark() is None, "this process is none of Spark's"
    assert callable(pyspark.daemon.worker), "what is replaced is there"

"""`esker serve` as an operator meets it: a clear start, or one line that says what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.crash.process import NodeProcess

_ARROW = "application/vnd.apache.arrow.stream"


def _esker(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ESKER_")}
    return subprocess.run(
        [sys.executable, "-m", "esker.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env={**environment, **variables},
        check=False,
    )


def _refused(result: subprocess.CompletedProcess[str]) -> str:
    """The one line that a refused start prints."""
    assert result.returncode == 2
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("esker: ")
    return line


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--set", "memory_limt=1gb"], "memory_limit"),
        (["--set", "memory_limit=lots"], "memory_limit"),
        (["--set", "nonsense"], "NAME=VALUE"),
        (["--host", "0.0.0.0"], "password"),
        (["--grpc-port", "9090"], "grpc_port"),
        (["--host", "0.0.0.0", "--resp-port", "-1"], "api_keys"),
        (["--host", "no-such-host.invalid"], "host 'no-such-host.invalid'"),
        (["--set", "api_keys=secret:reed"], "reed"),
        (["--set", "max_topics=-1"], "max_topics"),
        (["--set", "probe_auth=perhaps"], "probe_auth"),
        (["--config", "missing.toml"], "missing.toml"),
    ],
)
def test_a_bad_setting_ends_in_one_line_that_names_it(tmp_path: Path, arguments: list[str], named: str) -> None:
    data = tmp_path / "data"
    line = _refused(_esker("serve", "--data", str(data), "--resp-port", "0", "--http-port", "0", *arguments))
    assert named in line
    assert "secret" not in line
    assert not data.exists(), "nothing was touched"


def test_a_variable_that_is_no_setting_is_refused(tmp_path: Path) -> None:
    assert "memory_limt" in _refused(_esker("serve", "--data", str(tmp_path / "data"), ESKER_MEMORY_LIMT="1gb"))


_WITHOUT_PYARROW = """
import importlib.util, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "pyarrow" else find_spec(name, package)
from esker.cli.main import app
app()
"""


def test_an_archive_without_its_packages_is_refused_in_one_line(tmp_path: Path) -> None:
    arguments = ["serve", "--data", str(tmp_path / "data"), "--archive", str(tmp_path / "archive")]
    result = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PYARROW, *arguments, "--resp-port", "0", "--http-port", "0"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert "pip install 'esker[server,archive]'" in _refused(result)


def test_a_directory_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear ann")
    assert "--data" in _refused(_esker("serve", "--data", str(tmp_path), "--resp-port", "0"))
    assert (tmp_path / "letters.txt").read_text() == "dear ann"


def test_a_directory_of_a_newer_format_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("99")
    assert "format 99" in _refused(_esker("serve", "--data", str(tmp_path), "--resp-port", "0"))
    assert (tmp_path / "format").read_text() == "99"


def test_two_nodes_cannot_have_one_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess(data):
        assert "in use" in _refused(_esker("serve", "--data", str(data), "--resp-port", "0"))


def test_a_journal_in_use_is_not_repaired(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess(data):
        result = _esker("journal", "repair", str(data / "journal"), "--yes")
        assert result.returncode == 2
        assert "in use" in result.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "one") as node:
        line = _refused(_esker("serve", "--data", str(tmp_path / "two"), "--resp-port", str(node.port)))
        assert str(node.port) in line
        taken = str(node.http_port)
        line = _refused(_esker("serve", "--data", str(tmp_path / "two"), "--resp-port", "0", "--http-port", taken))
        assert taken in line
        assert "--http-port" in line


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
@pytest.mark.parametrize("off", ["--http-port", "--resp-port"])
def test_a_host_that_cannot_be_listened_on_is_named_and_no_port_is_blamed(tmp_path: Path, host: str, off: str) -> None:
    ports = {"--http-port": "0", "--resp-port": "0", off: "-1"}
    arguments = [word for pair in ports.items() for word in pair]
    line = _refused(
        _esker("serve", "--data", str(tmp_path / "data"), "--host", host, "--set", "password=x", *arguments)
    )
    assert f"host '{host}'" in line
    assert "--host" in line
    assert "-port" not in line


_INTERRUPTED_IMPORT = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "esker.cli.serve":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from esker.cli.start import main
main()
"""
_INTERRUPTED_NODE = """
import os, signal
from esker.cli import serve
from esker.cli.start import main
class Interrupted(serve.Node):
    def __init__(self, settings):
        super().__init__(settings)
        os.kill(os.getpid(), signal.SIGINT)
serve.Node = Interrupted
main()
"""


@pytest.mark.parametrize("program", [_INTERRUPTED_IMPORT, _INTERRUPTED_NODE], ids=["imports", "recovery"])
def test_an_interrupt_during_the_start_ends_in_one_line(tmp_path: Path, program: str) -> None:
    arguments = ["serve", "--data", str(tmp_path / "data"), "--resp-port", "0", "--http-port", "0"]
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    assert result.returncode == 130
    assert result.stderr == "esker: interrupted during the start\n"


def test_ctrl_c_stops_a_node_that_serves_in_order(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        assert node.interrupt() == 0
        assert "is ready" in node.said
        assert "interrupted" not in node.said


@pytest.mark.parametrize(
    ("setting", "shown"), [("password=secret-7", "-a PASSWORD"), ("api_keys=secret-7", "-a KEY"), ("probe_auth=0", "")]
)
def test_the_example_of_the_banner_works_with_a_secret_too(tmp_path: Path, setting: str, shown: str) -> None:
    with NodeProcess(tmp_path / "data", "--set", setting) as node:
        node.stop()
        (line,) = [line for line in node.said.splitlines() if "ADDJOB" in line]
        assert "secret-7" not in node.said
    words = line.strip("│ ").split()[1:]
    assert words == f"redis-cli -p {node.port} {shown} ADDJOB q hello 0 PRIORITY 5".split()


def test_beyond_loopback_it_listens_when_told_that_this_is_meant(tmp_path: Path) -> None:
    options = ("--host", "0.0.0.0", "--set", "allow_insecure_no_auth=true")
    with NodeProcess(tmp_path / "data", *options) as node:
        assert httpx.get(f"http://127.0.0.1:{node.http_port}/v0/health").json()["status"] == "ok"


def test_keys_are_asked_for_and_not_shown(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", "--set", "api_keys=secret-7:read") as node:
        url = f"http://127.0.0.1:{node.http_port}/v0/topics"
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"authorization": "Bearer secret-7"}).json()["topics"] == []
        node.stop()
        assert "secret-7" not in node.said


def test_a_front_that_is_off_has_no_port(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", "--http-port", "-1") as node:
        assert node.http_port == -1
        assert node.stop() == 0
        assert "HTTP" in node.said


def test_sigterm_ends_in_order_and_nothing_needs_folding_after(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        with node.client() as client:
            client.execute_command("ADDJOB", "q", "kept", 0)
        assert node.stop() == 0
    with NodeProcess(tmp_path / "data") as node, node.client() as client:
        assert client.execute_command("QLEN", "q") == 1
        assert int(client.info("persistence")["recovered_events"]) == 0


def test_diagnostics_can_be_json_and_then_nothing_else_is_printed(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", "--set", "diagnostics=json", "--set", "clients_max=100000000") as node:
        pid = node.pid
        node.stop()
    said = [json.loads(line) for line in node.said.splitlines()]
    assert "fewer clients" in [each["event"] for each in said]
    (ready,) = [each for each in said if each["event"] == "ready"]
    assert (ready["resp"], ready["http"], ready["pid"]) == (node.port, node.http_port, pid)


def test_the_settings_are_listed() -> None:
    result = _esker("settings")
    assert result.returncode == 0
    assert "memory_limit" in result.stdout


def test_a_node_makes_columns_without_loading_pandas(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        with httpx.Client(base_url=f"http://127.0.0.1:{node.http_port}") as web:
            web.put("/v0/topics/t", json={"type": "log"}).raise_for_status()
            web.post("/v0/topics/t", json={"records": [{"data": 1}]}).raise_for_status()
            columns = web.post("/v0/topics/t/diff", json={"from_seq": 0}, headers={"accept": _ARROW})
            assert columns.headers["content-type"] == _ARROW
        maps = Path(f"/proc/{node.pid}/maps").read_text()
    assert "pyarrow" in maps
    assert "pandas" not in maps

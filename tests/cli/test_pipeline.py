"""`esker pipeline` as an operator meets it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from esker.cli.main import app
from tests.crash.process import NodeProcess

PIPELINES = {"load", "export", "transform", "replay", "audit", "lifecycle"}


def _pipeline(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["pipeline", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_list_names_every_pipeline() -> None:
    code, said, _ = _pipeline("list", "--json")
    assert code == 0
    assert json.loads(said).keys() == PIPELINES
    assert all(name in _pipeline("list")[1] for name in PIPELINES)


@pytest.mark.parametrize("name", sorted(PIPELINES))
def test_show_explains_every_parameter(name: str) -> None:
    code, said, _ = _pipeline("show", name, "--json")
    assert code == 0
    shown = _pipeline("show", name)[1]
    for parameter in json.loads(said)["parameters"]:
        assert parameter["help"]
        assert parameter["name"] in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "laod"], "did you mean load?"),
        (["show", "exprot"], "did you mean export?"),
        (["run", "zzz"], "there are"),
        (["run", "load"], "needs --set input=…"),
        (["run", "load", "--set", "input"], "expected NAME=VALUE"),
        (["run", "load", "--set", "inptu=x"], "did you mean input?"),
        (["run", "load", "--set", "map.prioriti=1", "--set", "input=x"], "did you mean map.priority?"),
        (["run", "load", "--set", "map.zzz=1", "--set", "input=x"], "'map.zzz'"),
        (["run", "load", "--set", "map.tag=", "--set", "input=x"], "map.tag is empty"),
        (["run", "load", "--set", "input=x", "--set", "input=y"], "input is given twice"),
        (["run", "load", "--set", "input=x", "--set", "share=2"], "share cannot be '2': expected a number from 0.05"),
        (["run", "load", "--set", "input=x", "--set", "share=nan"], "share cannot be 'nan'"),
        (["run", "load", "--set", "input=x", "--set", "batch_mb=1.5"], "batch_mb cannot be '1.5'"),
        (["run", "load", "--set", "input=x", "--set", "format=xml"], "auto or parquet or csv or json"),
        (["run", "load", "--set", "input=x", "--set", "create=perhaps"], "create cannot be 'perhaps'"),
        (["run", "load", "--set", "input=x", "--output", "here"], "load takes no --output"),
        (["run", "export", "--set", "topic=t"], "pipeline export needs a folder: --output DIR"),
        (["run", "export", "--set", "topic=t", "--output", ""], "pipeline export needs a folder: --output DIR"),
        (["run", "lifecycle"], "pipeline lifecycle needs a folder: --output DIR"),
        (["run", "transform", "--set", "file=x"], "pipeline transform needs a folder: --checkpoint DIR"),
        (["run", "load", "--set", "input=x", "--continuous"], "--continuous is for"),
        (["run", "load", "--set", "input=x", "--endpoint", "ftp://x"], "endpoint"),
        (["run", "load", "--set", "input=x", "--api-key-file", "missing.key"], "missing.key"),
    ],
)
def test_bad_input_ends_in_one_line_that_names_it(arguments: list[str], told: str) -> None:
    code, _, said = _pipeline(*arguments)
    assert code == 2
    (line,) = said.strip().splitlines()
    assert line.startswith("esker: ")
    assert told in line


def test_a_key_is_never_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hunter2\n")
    code, out, said = _pipeline("run", "load", "--set", "input=x", "--set", "share=9", "--api-key-file",
                                str(tmp_path / "key"))  # fmt: skip
    assert code == 2
    assert "hunter2" not in out + said


_WITHOUT_SPARK = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "pyarrow", "pandas", "urllib3", "deltalake", "yaml"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import importlib.util
import_spec = importlib.util.find_spec
def find_spec(name, package=None):
    try:
        return import_spec(name, package)
    except ModuleNotFoundError:
        return None
importlib.util.find_spec = find_spec
from esker.cli.main import app
app(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--version"], 0, "esker "),
        (["pipeline", "list"], 0, "export"),
        (["pipeline", "show", "load"], 0, "batch_mb"),
        (["pipeline", "run", "load", "--set", "input=x"], 2, "pip install 'esker[spark]'"),
    ],
)
def test_without_spark_everything_else_works_and_a_run_says_what_to_install(
    arguments: list[str], code: int, told: str
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", _WITHOUT_SPARK, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == code, result.stderr
    assert told in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.timeout(240)  # Spark starts twice as long on a busy machine
def test_a_run_goes_on_until_it_is_told_to_stop_and_tells_its_result(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        url = f"http://127.0.0.1:{node.http_port}"
        body = {"records": [{"data": {"n": n}} for n in range(10)], "create": True}
        assert httpx.post(f"{url}/v0/topics/t", json=body).status_code == 201
        arguments = ["run", "export", "--set", "topic=t", "--output", str(tmp_path / "out"), "--endpoint", url]
        process = subprocess.Popen(
            [sys.executable, "-m", "esker.cli.main", "pipeline", *arguments, "--continuous", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            deadline = time.monotonic() + 100
            while not list((tmp_path / "out").glob("day=*/*.parquet")):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.1)  # the file is the signal; there is nothing to wait on
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    told = json.loads(out)
    assert (process.returncode, told["exit"], told["facts"]["rows"]) == (0, 0, 10)
    assert told["paths"] == [str(tmp_path / "out")]

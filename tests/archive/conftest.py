"""Every kind of place an archive may be in."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from esker.archive.interface import ArchiveStore
from esker.archive.opening import open_archive


@pytest.fixture(params=["folder", "file URL", "object store"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveStore:
    where = {
        "folder": str(tmp_path / "archive"),
        "file URL": (tmp_path / "by url").as_uri(),
        "object store": f"memory:///{uuid4().hex}",
    }[request.param]
    return open_archive(where, "node")


@pytest.fixture
def folder(tmp_path: Path) -> ArchiveStore:
    return open_archive(str(tmp_path / "archive"), "node")

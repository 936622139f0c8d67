"""Arrow in processes that make columns and nothing else, with the memory that this needs.

pyarrow looks for pandas whenever it makes an array, and loads it where it is installed, as it is beside Spark. That
takes a second and 50 MB, and in the node nobody needs it. And Arrow's own allocator keeps more of what was freed than
the system's does: about 40 MB while millions of records are read, at the same speed.
"""

from __future__ import annotations

import os
import sys


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def keep_arrow_lean() -> None:
    """Before pyarrow is loaded; for this process and those it starts."""
    sys.meta_path.insert(0, _NoPandas)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

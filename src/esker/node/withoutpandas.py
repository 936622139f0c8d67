"""For processes that make Arrow columns and nothing else.

pyarrow looks for pandas whenever it makes an array, and loads it where it is installed, as it is beside Spark. That
takes a second and 50 MB, and in the node nobody needs it.
"""

from __future__ import annotations

import sys


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def leave_out_pandas() -> None:
    """From now on this process finds no pandas."""
    sys.meta_path.insert(0, _NoPandas)

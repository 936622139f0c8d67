"""A process beside the node that turns segments of the journal into columns: for readers of the history, and for the
archive.

That is work for the interpreter, a microsecond a row, and in the node's own process it would take its time from the
event loop. Here it does not. The process is started when it is first needed (eventprocess.py). It ends when its pipe
does: with the node, however that ends.
"""

from __future__ import annotations

import sys


class WithoutPandas:
    """pyarrow looks for pandas whenever it makes an array. Loading it takes a second and 50 MB, and nobody needs it."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def main() -> None:
    sys.meta_path.insert(0, WithoutPandas)
    from esker.node.eventsteps import serve  # brings pyarrow along

    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()

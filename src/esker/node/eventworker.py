"""A process beside the node that turns segments of the journal into columns: for readers of the history, and for the
archive.

That is work for the interpreter, a microsecond a row, and in the node's own process it would take its time from the
event loop. Here it does not. The process is started when it is first needed (eventprocess.py). It ends when its pipe
does: with the node, however that ends.
"""

from __future__ import annotations

import sys

from esker.node.leanarrow import keep_arrow_lean


def main() -> None:
    keep_arrow_lean()
    from esker.node.eventsteps import serve  # brings pyarrow along

    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()

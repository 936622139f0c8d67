# mypy: disable-error-code="no-any-unimported"
"""Which names match a pattern that a client sent.

Arrow's engine is RE2: it takes time in proportion to what it reads, whatever the pattern is, and lets go of the
interpreter meanwhile. Python's own would let one request stop the node.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def matching(names: Sequence[bytes], pattern: str) -> list[bytes]:
    """The names that match as a whole, in their order. Raises ValueError when it is no pattern."""
    # Bytes without look at their encoding: names are ASCII where they can be asked for.
    values = pa.array(names, pa.binary()).cast(pa.string(), safe=False)
    try:
        pc.match_substring_regex(pa.array([""]), pattern)  # alone, so that what surrounds it cannot complete it
        mask = pc.match_substring_regex(values, rf"\A(?:{pattern})\z")
    except pa.ArrowInvalid as error:
        raise ValueError(str(error).partition("\n")[0]) from error
    return [name for name, matches in zip(names, mask.to_pylist(), strict=True) if matches]

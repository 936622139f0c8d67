"""Where fronts listen."""

from __future__ import annotations

import pytest
import uvloop

from esker.fronts.listening import listen


def test_a_name_with_several_addresses_is_listened_to_on_one_port() -> None:
    async def run() -> None:
        found = await listen("localhost", 0, 16)
        ports = {each.getsockname()[1] for each in found}
        assert len(ports) == 1
        for each in found:
            each.close()

    uvloop.run(run())


def test_an_address_of_another_machine_is_refused() -> None:
    async def run() -> None:
        with pytest.raises(OSError, match="assign requested address"):
            await listen("192.0.2.1", 0, 16)

    uvloop.run(run())

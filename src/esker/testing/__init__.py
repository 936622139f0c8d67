"""Tools for tests of systems that use Esker.

`Broker` is a real broker in the test process, `Engine` the engine under a virtual clock; `faults` makes disks fail.
"""

from esker.testing.broker import Broker
from esker.testing.engine import Engine, VirtualClock

__all__ = ["Broker", "Engine", "VirtualClock"]

"""Tools for tests of systems that use Esker: a real broker in the process, and faults on demand."""

from esker.testing.broker import Broker

__all__ = ["Broker"]

"""Esker: durable priority queues behind the Redis protocol.

from esker.testing import Broker

with Broker() as broker:
    redis.Redis(port=broker.resp_port).execute_command("ADDJOB", "q", "hello", 0)
"""

__version__ = "0.1.0"

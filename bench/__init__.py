"""Esker beside its peers, on the same machine in the same minutes.

    python -m bench                       everything; some thirty minutes on two cores
    python -m bench --quick --only life   a first look

Figures of a shared machine drift by tens of percent within minutes, so only ratios count: every measure alternates
Esker and its peer in several rounds and compares them round by round. A peer is started afresh for each run, on a free
loopback port, with its data in a temporary folder on the file system that Esker uses too.

    peers      starts and stops Redis, NATS, beanstalkd, Esker   talk      one connection's dialogue, for queues
    machine    what the figures were measured on                 http, streams, jetstream   the same, for event logs
    figures    rates, percentiles, medians                       load      a closed loop over many connections
    bars       what must hold                                    deliveries   one writer and many watchers
    fill       many jobs, fast                                   iterate   RocksDB alone
    report     the table, the JSON, the Markdown                 abusers   clients that misbehave
    enqueue, life, backlog, restart, stall                       the measures of the Redis front
    abuse                                                        of both: others beside an abuser
    records, watchers, claims, fanout, replay, tail              those of the HTTP front
"""

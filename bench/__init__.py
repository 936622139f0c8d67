"""Esker beside its peers, on the same machine in the same minutes.

    python -m bench                       everything; some fifteen minutes on two cores
    python -m bench --quick --only life   a first look

Figures of a shared machine drift by tens of percent within minutes, so only ratios count: every measure alternates
Esker and its peer in several rounds and compares medians. A peer is started afresh for each run, on a free loopback
port, with its data in a temporary folder on the file system that Esker uses too.

    peers      starts and stops Redis, beanstalkd and Esker      talk      one connection's dialogue in each protocol
    machine    what the figures were measured on                 load      a closed loop over many connections
    figures    rates, percentiles, medians                       fill      many jobs, fast
    bars       what must hold                                    report    the table, the JSON, the Markdown
    enqueue, life, backlog, restart, stall                       the measures
"""

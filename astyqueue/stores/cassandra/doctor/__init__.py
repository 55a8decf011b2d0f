"""What `doctor` finds out about a cluster: queries to each node, and findings from their answers.

- `probes`: the queries: settings, clocks, replication, versions and sizes, as one record for each node. A node that
  does not answer has its error there.
- `checks`: findings from these records, each with a reason and a remedy; no I/O.

`stores.cassandra.admin` calls both; `astyqueue doctor` prints the findings beside those of queues.
docs/how-to/cassandra.md lists what is checked, docs/how-to/production.md when to run it.
"""

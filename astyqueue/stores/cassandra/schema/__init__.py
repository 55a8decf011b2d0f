"""The keyspace and its tables: their declarations, creating them, reading them back, and comparing the two.

- `files`: the tables, from the numbered files in `schema/cassandra`. `system_schema`: the tables the cluster has.
- `keyspace`: replication, and the statements that create or change a keyspace.
- `migrations`: creates what is missing; a lock lets one process at a time do it.
- `check`: each difference between declared and actual tables, with a remedy.
- `home_data_centre`: the data centre whose majority decides commits, which the keyspace stores for all clients.

`astyqueue migrate` runs the first four, `astyqueue verify` and `doctor` the check; a store that is opened checks its
home. docs/how-to/cassandra.md says how to run them, docs/decisions/0026-a-keyspace-stores-its-home-data-centre.md why
there is a home.
"""

"""Connecting to a cluster: what a URL says, logins, sessions of the driver, and the driver's errors in our terms.

- `settings`: what a URL says, checked before anything is opened. `authentication`: logins and certificates from files,
  read again when they change.
- `cluster`: a session of the driver with what the protocol needs: the home data centre, time limits, retries.
- `errors`: each error of the driver as one of `astyqueue.errors`: the outcome of a write is known or not.

`CassandraStore` opens a session here when it is made, and another in a forked child. docs/reference/url.md lists the
options of a URL, docs/how-to/cassandra.md and SECURITY.md say how to set up logins.
"""

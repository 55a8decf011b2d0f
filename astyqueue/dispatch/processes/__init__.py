"""Runs handlers in child processes: for code that holds the interpreter lock, leaks, or must be killed on a timeout.

- `channel`: frames of plain values over a socket between the parent and one child.
- `forwarded_delivery`: a delivery as it crosses the channel, and as a handler in the child has it.
- `child`: what a child process does, from its start to the end of its parent.
- `child_process`: one child as its parent has it: started, called, killed and replaced.
- `children`: the children of a dispatcher.

The parent claims, keeps leases and settles. A child gets one delivery at a time and opens no store.
"""

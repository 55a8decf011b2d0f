"""Runs handlers in child processes: for code that holds the interpreter lock, leaks, or must be killed on a timeout.

- `channel`: frames of plain values over pipes between the parent and one child.
- `forwarded_delivery`: a delivery as it crosses the channel, and as a handler in the child has it.
- `child_main`: what a child process does, from its start to the end of its parent.
- `child_process`: one child as its parent has it: started, called and killed.
- `children`: the children of a dispatcher: which are idle, and when one is replaced.
- `stray_forks`: ends the processes that a handler forked and that come back from it.

The parent claims, keeps leases and settles. A child gets one delivery at a time and opens no store.

In the parent a slot, a thread of `slots`, calls `ProcessChildren.call` as it would call a handler: it takes an idle
child, sends the address of the function and the delivery, and waits. Meanwhile it does what the handler asks of its
delivery (ack, extend, follow-ups) and logs what the handler logs; at last it returns, or raises the outcome that the
handler chose. The monitor kills a child whose handler is past its timeout, by `interrupt`; the slot starts the next
one. In the child the main thread runs the handler, and astyqueue:parent, or a signal of the kernel, ends the process
when the parent is gone.

docs/how-to/handlers.md shows them in use, docs/decisions/0049 says why the dispatcher starts them itself.
"""

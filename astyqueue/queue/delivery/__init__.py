"""Deliveries: messages leased to this process, the right to settle each, and how failed ones are retried.

- `base_delivery`: a lease, which is one timer in the store, the deliveries under it, and the waiters that get them.
  `BaseDelivery` is a delivery without the calls that settle it, `running_delivery` the one that running code handles.
- `delivery`: deliveries for threads, whose `ack`, `release`, `fail`, `extend` and `reject` wait for the commit, and
  `Received`, several of them as one context manager. `astyqueue.aio.delivery` is written from it, for tasks.
- `batch`: the part of `Received` that both have in common.
- `follow_ups`: the messages that are sent when a delivery is acked.
- `retry_policy`: what becomes of a failed delivery: again after a backoff, or a dead letter with a reason.

A claim makes deliveries here; consumers settle them; `queue.consuming` commits the outcomes.
docs/explanation/life-cycle.md has the states that these outcomes lead to.
"""

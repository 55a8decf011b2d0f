"""Recording the outcomes of leased messages.

- `outcomes`: ack, reject, release and extend, and the changes that they make to the timer that hides the messages; no
  I/O.
- `settle`: the commit of such changes against the timer of the lease. It finds the timer again if it was replaced by
  another commit of this claim, and reads back what became of a commit of unknown outcome.

A settle expects its own timer, unchanged, and not the header of the row, so claims never delay it. Messages whose lease
has ended are returned as lost, unchanged. Only a release to an earlier moment needs the header; if that is contested,
it leaves a mark in the timer instead. docs/decisions/0003-settle-without-the-header.md says why,
docs/explanation/life-cycle.md what each outcome does to a message.
"""

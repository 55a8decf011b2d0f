"""Writing messages into rows: blind inserts, unique keys, and idempotent sends.

- `insert`: a blind write of any number of messages, which neither reads nor conflicts; if it ended a minute late, a
  commit lists its messages.
- `unique`: a message with a unique key: one commit on the home row of the key writes both. `key_state`: whether a key
  is free or who owns it, and how to cancel the owner.
- `idempotent`: messages that a sender such as Spark may send again with the same ids, even after they were settled.
- `key_index`: finds the messages of a key.

A plain send is one write of one request. A unique or idempotent one commits against what it has read, and reads it back
if the outcome is unknown. docs/how-to/keys.md says which of them to use.
"""

"""What a message, a delivery and a queue's settings are: values without behaviour in time.

What a producer gives becomes what is stored:

- `message`: checks the arguments of a send, and makes a `Message` and its envelope of them; `body` encodes its JSON.
- `envelope`: the envelope, ids of messages, receipts. `event` and `schedule` are the same for histories and schedules.
- `settings`: layout and behaviour of a queue, and their text. `validation`: checks of text and counts.

What is stored becomes what an operator reads, with `as_json` for commands:

- `views`: messages, dead letters, counts and reports.
- `explanation`: the facts on one message, and the sentences that explain its state. `health`: findings on a queue.

Nothing here reads a clock or a store; `astyqueue.protocol` does, and makes these values. docs/explanation/life-cycle.md
has the states of a message, docs/reference/settings.md the settings.
"""

"""Writing messages into rows: blind inserts, unique keys, and idempotent sends."""

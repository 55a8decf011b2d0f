"""The reads and writes of a store: CQL statements, encoding, retries, and speculative execution."""

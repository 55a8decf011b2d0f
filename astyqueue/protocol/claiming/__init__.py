"""Finding messages that are due, and claiming them under a lease."""

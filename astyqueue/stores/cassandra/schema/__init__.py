"""The keyspace and its tables: their declarations, creating them, reading them back, and comparing the two."""

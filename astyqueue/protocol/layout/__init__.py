"""The layout of the store: rows, columns, and their values."""

"""The demo: index Python's own library with two workers, one of which is killed on the way, and lose nothing."""

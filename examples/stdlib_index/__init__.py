"""The demo: two workers index Python's standard library; one of them is killed, and no message is lost."""

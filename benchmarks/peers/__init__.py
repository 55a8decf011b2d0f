"""One empty task in several task queues: what `python -m benchmarks worker` compares.

Each module `*_app` is the app of one system, written as its documentation shows it: the name that its worker command is
given, and `sender()`, which returns a function that sends one task. The other systems are installed in an environment
of their own (`requirements.txt`), in which astyqueue is not: what all apps share needs the standard library only.
"""

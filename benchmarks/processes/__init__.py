"""The processes that benchmarks start: each is run with `python -m`, apart from the app, which a worker loads."""

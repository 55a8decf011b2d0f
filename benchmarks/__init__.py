"""How fast it is, one module a question: `python -m benchmarks --help` lists them."""

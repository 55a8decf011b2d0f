"""Benchmarks, one module for each claim: `python -m benchmarks --help` lists them."""

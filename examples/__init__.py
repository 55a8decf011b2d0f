"""Complete programs; the tests run each of them."""

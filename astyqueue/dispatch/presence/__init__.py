"""What a dispatcher reports about itself to its store, and how it notices that it no longer works."""

"""Recording the outcomes of leased messages."""

"""Running handlers for messages: threads, a bounded backlog, outcomes in batches, and an orderly end."""

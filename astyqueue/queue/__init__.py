"""What users hold: queues, deliveries, builders, connections."""

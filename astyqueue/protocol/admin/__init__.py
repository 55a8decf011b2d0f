"""The operations of operators on a queue: browse, explain, redrive, delete, settings, health."""

"""What a message, a delivery and a queue's settings are: values without behaviour in time."""

"""Deliveries: messages leased to this process, the right to settle each, and how failed ones are retried."""

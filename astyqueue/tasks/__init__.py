"""Functions as tasks: sending a call of one into a queue, and running what was sent."""

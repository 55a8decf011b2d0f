"""What operators do with a queue, as step functions: the classes for threads and for tasks only run them."""

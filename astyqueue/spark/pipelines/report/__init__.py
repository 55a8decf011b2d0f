"""A page about what became of the messages: one HTML file that needs nothing else, made from the tables of the pipeline."""

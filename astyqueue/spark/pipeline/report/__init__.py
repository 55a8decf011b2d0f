"""A page on the outcomes of messages: one self-contained HTML file, made from the tables of the pipeline."""

"""What `doctor` finds out about a cluster: queries to each node, and findings from their answers."""

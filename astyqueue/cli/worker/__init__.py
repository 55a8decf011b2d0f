"""What surrounds the dispatcher of `astyqueue worker`: its processes, signals, health checks, and limits of memory."""

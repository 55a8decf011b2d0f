"""Connecting to a cluster: what a URL says, logins, sessions of the driver, and the driver's errors in our terms."""

"""Comments that silence findings: read from a file, and written into it."""

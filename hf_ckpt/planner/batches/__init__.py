"""Plans a running model batch by batch."""

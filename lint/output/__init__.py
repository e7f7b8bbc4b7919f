"""What a run reports, and how it is printed."""

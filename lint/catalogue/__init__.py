"""The rules as data for their users: codes, names and pages."""

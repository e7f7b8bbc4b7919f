"""Modules of the project that a file imports: what their names mean, which of them are read."""

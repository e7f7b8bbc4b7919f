"""The project around a file: which files and settings there are, its modules, library versions and baseline."""

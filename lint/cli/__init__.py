"""The command line: its options, and what each command does."""

"""From bytes to findings: one text, one file, many files, many files as one project."""

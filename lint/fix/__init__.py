"""Everything that touches source text: the libcst tree, confirmation of reports on it, and fixes built on it."""

"""The language server: diagnostics and quick fixes in the editor."""

"""Which files, and in them which rules, are worth a look: text search, far cheaper than parsing."""

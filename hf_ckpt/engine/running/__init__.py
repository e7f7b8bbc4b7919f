"""A call of a traced layer: what is prepared for it, what it saves, what its first use checks."""

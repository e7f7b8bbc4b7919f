"""Proof of effect: what each layer held and replayed, counted in the run itself."""

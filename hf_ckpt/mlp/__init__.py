"""The MLP of decoder layers in chunks of the tokens: its intermediates never exist for all tokens at once."""

"""Parts of decoder layers in chunks of the tokens: what they make on the way never exists for all tokens at once."""

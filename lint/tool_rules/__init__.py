"""Pages of the CKPT9xx codes: what the tool says about itself and its input. They have no analysis of their own."""

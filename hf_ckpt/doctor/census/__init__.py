"""Who holds which bytes, at one moment: tensors by what they are for, graphs, and the user's own names for the rest."""

"""From a plan to what happens to each saved tensor of a trace, and to the function that rebuilds."""

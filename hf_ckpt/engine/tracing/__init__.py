"""From one call of a layer to its trace, on fake tensors, and from the trace to the ledger."""

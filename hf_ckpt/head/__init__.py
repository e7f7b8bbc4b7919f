"""Policy ``head(chunks)``: the language model head and its loss in chunks, so that full logits never exist."""

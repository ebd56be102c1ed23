"""One block: logits reduced where they are, states proved, and all of it written."""

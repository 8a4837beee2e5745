"""One step of training: runtime, loss, optimizer, state, and what fits into memory."""

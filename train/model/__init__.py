"""The network: normalisation, the dense block in its memory modes, and the models built of them."""

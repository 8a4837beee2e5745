"""The input of a step: which images, and how each is changed for training."""

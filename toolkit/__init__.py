"""Containers that build TensorFlow for one exact GPU stack, prove the result, and train with it."""

__version__ = "0.1.0"

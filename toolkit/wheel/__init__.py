"""TensorFlow wheels: planned, built, read without being installed, and proven."""

"""TensorFlow wheels: planned, built, inspected without being installed, and published."""

"""Puts machine code for another GPU into a TensorFlow wheel, made from the PTX that the wheel has."""

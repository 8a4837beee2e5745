"""Rehearses the job's GPU path on a machine without a GPU: an emulated device under TensorFlow's CUDA build.

Nothing here has run on a GPU. What is shown is the host's side: which operations have kernels, what TensorFlow refuses,
how often it launches, copies and waits, and how much memory its allocator asks for.
"""

"""Rehearses the job's GPU path on a machine without a GPU: an emulated device under TensorFlow's CUDA build.

It shows the host's side: which operations have kernels, what TensorFlow refuses, how often it launches, copies and
waits, and how much memory its allocator asks for. Nothing here has run on a GPU.
"""

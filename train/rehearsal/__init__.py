"""Rehearses the GPU path of the job without a GPU: TensorFlow's CUDA build runs on an emulated device.

It shows which operations have kernels, what TensorFlow refuses, how often it launches, copies and waits, and how much
memory its allocator asks for. Nothing here has run on a GPU.
"""

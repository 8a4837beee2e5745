"""A GPU that computes nothing: emulated libraries of NVIDIA, under which TensorFlow's CUDA build trains the job.

What the host does is real: which operations have a kernel for GPUs, what a step launches, copies and waits for, and how
much memory TensorFlow's allocator takes. The emulated libraries have the names that TensorFlow opens, and are written
from public headers. Differences from a GPU:

- There are no results. The host reads zero, or true if it reads one byte.
- cuDNN and cuBLAS have one algorithm for everything, ask for no workspace and refuse nothing: the allocator's peak is a
  lower bound.
- A module is taken or refused as a driver does it. PTX is not assembled, and PTX that zstd has packed is not read.
- There is no time, and streams have no order. Two devices cannot reach each other's memory.

A call that is not emulated returns an error and is counted.
"""

"""Rehearses the GPU path of the job without a GPU: TensorFlow's CUDA build runs on an emulated device."""

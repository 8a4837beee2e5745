// gpu_prim.h includes it and uses nothing of it; NVIDIA's wheel with the real one has 217 MB.

/* Modules, kernels and their launches. A kernel is a name: launching it checks what a driver checks, and counts. */
#include "nullgpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct CUfunc_st {
  const char *name;
  CUmodule module;
  int shared; /* dynamic shared memory asked for, bytes */
  CUfunction next;
};
struct CUmod_st {
  CUfunction kernels;
  CUdeviceptr globals;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

CUmodule ng_make_module(void) { return calloc(1, sizeof(struct CUmod_st)); }

static CUresult load(CUmodule *module, const void *data) {
  Image image = ng_inspect_loaded(data);
  const Device *it = ng_device();
  *module = NULL;
  switch (image.code) {
    case INVALID: return ng_refuse(CUDA_ERROR_INVALID_IMAGE, "a module that is no fat binary, no cubin and no PTX");
    case BOUND_PTX:
      return ng_refuse(CUDA_ERROR_INVALID_PTX, "a module whose PTX is for other GPUs alone than capability %d.%d",
                       it->capability / 10, it->capability % 10);
    case NO_CODE:
      return ng_refuse(CUDA_ERROR_NO_BINARY_FOR_GPU, "a module without code for capability %d.%d",
                       it->capability / 10, it->capability % 10);
    case NEEDS_JIT:
      if (it->driver >= image.driver) break;
      return ng_refuse(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "a module with PTX of CUDA %d under a driver for CUDA %d",
                       image.driver, it->driver);
    case HAS_CUBIN: break;
  }
  *module = ng_make_module();
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *module, const void *image) { return load(module, image); }
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, CUjit_option *options, void **values) {
  return load(module, image);
}
CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) { return load(module, image); }
CUresult cuModuleUnload(CUmodule module) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *kernel, CUmodule module, const char *name) {
  *kernel = NULL;
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  CUfunction found = module->kernels;
  while (found && strcmp(found->name, name)) found = found->next;
  if (!found) {
    found = calloc(1, sizeof *found);
    *found = (struct CUfunc_st){strdup(name), module, 0, module->kernels};
    module->kernels = found;
  }
  pthread_mutex_unlock(&lock);
  *kernel = found;
  return CUDA_SUCCESS;
}
/* XLA writes its constants to such symbols; nothing is kept there, so all of a module share one address. */
CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *size, CUmodule module, const char *name) {
  enum { SIZE = 1 << 20 };
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  CUresult status = module->globals ? CUDA_SUCCESS : cuMemAlloc(&module->globals, SIZE);
  pthread_mutex_unlock(&lock);
  if (address) *address = module->globals;
  if (size) *size = SIZE;
  return status;
}
CUresult cuFuncGetName(const char **name, CUfunction kernel) {
  *name = kernel->name;
  return CUDA_SUCCESS;
}
CUresult cuFuncGetModule(CUmodule *module, CUfunction kernel) {
  *module = kernel->module;
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute name, CUfunction kernel) {
  switch ((int)name) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break; /* a guess: nothing here knows a kernel's registers */
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = ng_device()->capability; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = kernel->shared ? kernel->shared : 49152; break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = -1; break;
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction kernel, CUfunction_attribute name, int value) {
  if (name != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
  if (value > ng_device()->shared)
    return ng_refuse(CUDA_ERROR_INVALID_VALUE, "%d bytes of shared memory for %s", value, kernel->name);
  kernel->shared = value;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetCacheConfig(CUfunction kernel, CUfunc_cache config) { return CUDA_SUCCESS; }

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction kernel, int threads, size_t shared) {
  const Device *device = ng_device();
  int most = threads > 0 ? device->threads / threads : 1;
  if (shared && (int)((size_t)device->shared / shared) < most) most = (int)((size_t)device->shared / shared);
  *blocks = most > device->blocks ? device->blocks : most;
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction kernel, int threads,
                                                              size_t shared, unsigned flags) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared);
}
CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction kernel, CUoccupancyB2DSize size,
                                          size_t shared, int limit) {
  *block = limit > 0 && limit < 1024 ? limit : 1024;
  *grid = ng_device()->multiprocessors;
  return CUDA_SUCCESS;
}

/* ---- launches */

void ng_count_launch(CUfunction kernel, const char *where) {
  ng_countf(where, 1, "device %d", ng_current_device());
  ng_count("kernel", kernel->name, 1);
}

static CUresult launch(CUfunction kernel, const unsigned grid[3], const unsigned block[3], unsigned shared) {
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  unsigned long threads = (unsigned long)block[0] * block[1] * block[2];
  int fits = threads && threads <= 1024 && block[2] <= 64 && grid[0] && grid[1] && grid[2] && grid[1] <= 65535 &&
             grid[2] <= 65535 && shared <= (unsigned)ng_device()->shared;
  if (!fits)
    return ng_refuse(CUDA_ERROR_INVALID_VALUE, "launch of %s with grid %u,%u,%u block %u,%u,%u shared %u", kernel->name,
                     grid[0], grid[1], grid[2], block[0], block[1], block[2], shared);
  if (!ng_capture((Work){CU_GRAPH_NODE_TYPE_KERNEL, .kernel = kernel})) ng_count_launch(kernel, "launch");
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **parameters, void **extra) {
  return launch(kernel, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared);
}
CUresult cuLaunchCooperativeKernel(CUfunction kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                   unsigned bz, unsigned shared, CUstream stream, void **parameters) {
  return launch(kernel, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction kernel, void **parameters, void **extra) {
  return launch(kernel, (unsigned[]){c->gridDimX, c->gridDimY, c->gridDimZ},
                (unsigned[]){c->blockDimX, c->blockDimY, c->blockDimZ}, c->sharedMemBytes);
}

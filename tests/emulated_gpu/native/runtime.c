/* The runtime API: kernels are found by the address of their host function, the rest goes to the driver. */
#include "nullgpu.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors; the runtime's numbers are the driver's */

static __thread cudaError_t last;
static cudaError_t report(cudaError_t error) { return error ? (last = error) : cudaSuccess; }
static cudaError_t driver(CUresult status) { return report((cudaError_t)status); }
/* The runtime refuses a driver of an older major version (CUDA Compatibility, "minor version compatibility"). */
static cudaError_t ready(void) {
  if (ng_device()->driver / 1000 < CUDART_VERSION / 1000) {
    ng_refuse(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "driver for CUDA %d.%d under a runtime of CUDA %d.%d",
              ng_device()->driver / 1000, ng_device()->driver % 1000 / 10, CUDART_VERSION / 1000,
              CUDART_VERSION % 1000 / 10);
    return report(cudaErrorInsufficientDriver);
  }
  return report(ng_device()->count ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaGetLastError(void) {
  cudaError_t error = last;
  last = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError(void) { return last; }
const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
    case cudaErrorUnsupportedPtxVersion: return "the provided PTX was compiled with a newer toolchain than the driver's";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    default: {
      const char *text;
      cuGetErrorString((CUresult)error, &text);
      return text;
    }
  }
}
const char *cudaGetErrorName(cudaError_t error) {
  const char *name;
  cuGetErrorName((CUresult)error, &name);
  return name;
}

/* ---- fat binaries of the program's own kernels */

typedef struct {
  CUmodule module;
  Image image;
} Binary;
typedef struct {
  int magic, version;
  const unsigned char *data;
} Wrapper;

void **__cudaRegisterFatBinary(const Wrapper *wrapper) {
  Binary *binary = calloc(1, sizeof *binary);
  *binary = (Binary){ng_make_module(), ng_inspect_registered(wrapper->data)};
  return (void **)binary;
}
void __cudaRegisterFatBinaryEnd(void **binary) {}
void __cudaUnregisterFatBinary(void **binary) {}
char __cudaInitModule(void **binary) { return 1; }

/* ---- what the program registers: kernels and variables, by the address that stands for them on the host */

typedef struct Registered {
  const void *host;
  const char *name;
  const Binary *binary;
  size_t size;
  CUfunction kernel;
  CUdeviceptr variable;
  struct Registered *next;
} Registered;
enum { SLOTS = 1 << 16 };
static Registered *slots[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static Registered **slot(const void *host) { return &slots[((uintptr_t)host >> 4) * 2654435761u % SLOTS]; }
static void add(void **binary, const void *host, const char *name, size_t size) {
  Registered *it = calloc(1, sizeof *it);
  pthread_mutex_lock(&lock);
  *it = (Registered){host, name, (Binary *)binary, size, NULL, 0, *slot(host)};
  *slot(host) = it;
  pthread_mutex_unlock(&lock);
}
static Registered *find(const void *host) {
  pthread_mutex_lock(&lock);
  Registered *it = *slot(host);
  while (it && it->host != host) it = it->next;
  pthread_mutex_unlock(&lock);
  return it;
}
void __cudaRegisterFunction(void **binary, const char *host, char *device, const char *name, int limit, void *thread,
                            void *block, void *block_size, void *grid_size, int *warp) {
  add(binary, host, name, 0);
}
void __cudaRegisterVar(void **binary, char *host, char *device, const char *name, int external, size_t size,
                       int constant, int global) {
  add(binary, host, name, size);
}

static cudaError_t find_kernel(const void *host, CUfunction *kernel) {
  Registered *it = find(host);
  if (!it) return report(cudaErrorInvalidDeviceFunction);
  if (it->binary->image.code < NEEDS_JIT) {
    ng_refuse(CUDA_ERROR_NO_BINARY_FOR_GPU, "no code for capability %d.%d: %s", ng_device()->capability / 10,
              ng_device()->capability % 10, it->name);
    return report(cudaErrorNoKernelImageForDevice);
  }
  if (it->binary->image.code == NEEDS_JIT && ng_device()->driver < CUDART_VERSION) {
    ng_refuse(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "PTX of CUDA %d under a driver for CUDA %d: %s", CUDART_VERSION,
              ng_device()->driver, it->name);
    return report(cudaErrorUnsupportedPtxVersion);
  }
  if (!it->kernel) cuModuleGetFunction(&it->kernel, it->binary->module, it->name);
  *kernel = it->kernel;
  return cudaSuccess;
}
static cudaError_t find_variable(const void *host, CUdeviceptr *address) {
  Registered *it = find(host);
  if (!it) return report(cudaErrorInvalidSymbol);
  cudaError_t status = it->variable ? cudaSuccess : driver(cuMemAlloc(&it->variable, it->size ? it->size : 1));
  *address = it->variable;
  return status;
}

/* ---- launches */

typedef struct {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
} Configuration;
enum { DEEPEST = 16 };
static __thread Configuration pushed[DEEPEST];
static __thread unsigned depth;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  pushed[depth++ % DEEPEST] = (Configuration){grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  Configuration it = pushed[--depth % DEEPEST];
  *grid = it.grid;
  *block = it.block;
  *shared = it.shared;
  *(cudaStream_t *)stream = it.stream;
  return cudaSuccess;
}
static cudaError_t launch(CUfunction kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  CUresult status = cuLaunchKernel(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, stream,
                                   NULL, NULL);
  return report(status ? cudaErrorInvalidConfiguration : cudaSuccess);
}
static cudaError_t launch_host(const void *host, dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  CUfunction kernel;
  cudaError_t status = find_kernel(host, &kernel);
  return status ? status : launch(kernel, grid, block, shared, stream);
}
cudaError_t cudaLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream) {
  return launch_host(f, grid, block, shared, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared,
                                        cudaStream_t stream) {
  return launch_host(f, grid, block, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **args) {
  return launch_host(f, c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream);
}
cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *symbol) { return find_kernel(symbol, function); }
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *symbol) {
  CUfunction kernel;
  cudaError_t status = find_kernel(symbol, &kernel);
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = ng_device()->capability;
  attributes->maxDynamicSharedSizeBytes = 49152;
  attributes->preferredShmemCarveout = -1;
  return status;
}
cudaError_t cudaFuncSetAttribute(const void *symbol, enum cudaFuncAttribute name, int value) {
  CUfunction kernel;
  cudaError_t status = find_kernel(symbol, &kernel);
  return status ? status : driver(cuFuncSetAttribute(kernel, (CUfunction_attribute)name, value));
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *symbol, int threads,
                                                                   size_t shared, unsigned flags) {
  CUfunction kernel;
  cudaError_t status = find_kernel(symbol, &kernel);
  return status ? status : driver(cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared));
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *symbol, int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, symbol, threads, shared, 0);
}

/* ---- devices */

cudaError_t cudaGetDeviceCount(int *count) {
  *count = 0;
  cudaError_t status = ready();
  return status ? status : driver(cuDeviceGetCount(count));
}
cudaError_t cudaGetDevice(int *device) {
  *device = ng_current_device();
  return ready();
}
cudaError_t cudaSetDevice(int device) {
  CUcontext context;
  cudaError_t status = ready();
  if (!status) status = driver(cuDevicePrimaryCtxRetain(&context, device));
  return status ? status : driver(cuCtxSetCurrent(context));
}
cudaError_t cudaDriverGetVersion(int *version) { return driver(cuDriverGetVersion(version)); }
cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr name, int device) {
  return driver(cuDeviceGetAttribute(value, (CUdevice_attribute)name, device));
}
#undef cudaGetDeviceProperties
cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int device) {
  static const struct {
    CUdevice_attribute name;
    size_t place;
  } fields[] = {
#define FIELD(field, name) {CU_DEVICE_ATTRIBUTE_##name, offsetof(struct cudaDeviceProp, field)}
      FIELD(regsPerBlock, MAX_REGISTERS_PER_BLOCK),
      FIELD(warpSize, WARP_SIZE),
      FIELD(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK),
      FIELD(maxThreadsDim[0], MAX_BLOCK_DIM_X),
      FIELD(maxThreadsDim[1], MAX_BLOCK_DIM_Y),
      FIELD(maxThreadsDim[2], MAX_BLOCK_DIM_Z),
      FIELD(maxGridSize[0], MAX_GRID_DIM_X),
      FIELD(maxGridSize[1], MAX_GRID_DIM_Y),
      FIELD(maxGridSize[2], MAX_GRID_DIM_Z),
      FIELD(clockRate, CLOCK_RATE),
      FIELD(major, COMPUTE_CAPABILITY_MAJOR),
      FIELD(minor, COMPUTE_CAPABILITY_MINOR),
      FIELD(multiProcessorCount, MULTIPROCESSOR_COUNT),
      FIELD(canMapHostMemory, CAN_MAP_HOST_MEMORY),
      FIELD(concurrentKernels, CONCURRENT_KERNELS),
      FIELD(pciBusID, PCI_BUS_ID),
      FIELD(asyncEngineCount, ASYNC_ENGINE_COUNT),
      FIELD(unifiedAddressing, UNIFIED_ADDRESSING),
      FIELD(memoryClockRate, MEMORY_CLOCK_RATE),
      FIELD(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH),
      FIELD(l2CacheSize, L2_CACHE_SIZE),
      FIELD(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR),
      FIELD(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED),
      FIELD(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR),
      FIELD(managedMemory, MANAGED_MEMORY),
      FIELD(cooperativeLaunch, COOPERATIVE_LAUNCH),
      FIELD(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR),
  };
  memset(p, 0, sizeof *p);
  cudaError_t status = ready();
  if (!status) status = driver(cuDeviceGetName(p->name, sizeof p->name, device));
  if (status) return status;
  cuDeviceTotalMem(&p->totalGlobalMem, device);
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    cuDeviceGetAttribute((int *)((char *)p + fields[i].place), fields[i].name, device);
  int shared;
  cuDeviceGetAttribute(&shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device);
  p->sharedMemPerMultiprocessor = (size_t)shared;
  p->sharedMemPerBlockOptin = (size_t)ng_device()->shared;
  p->sharedMemPerBlock = 49152;
  p->totalConstMem = 65536;
  p->memPitch = 2147483647;
  p->textureAlignment = 512;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *name, int size, int device) {
  return driver(cuDeviceGetPCIBusId(name, size, device));
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  return driver(cuDeviceCanAccessPeer(can, device, peer));
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  return driver(cuCtxGetStreamPriorityRange(least, greatest));
}
cudaError_t cudaDeviceSynchronize(void) { return driver(cuCtxSynchronize()); }

/* ---- memory */

#define AT(address) ((CUdeviceptr)(address))
cudaError_t cudaMalloc(void **address, size_t bytes) { return driver(cuMemAlloc((CUdeviceptr *)address, bytes)); }
cudaError_t cudaFree(void *address) { return driver(cuMemFree(AT(address))); }
cudaError_t cudaMallocHost(void **address, size_t bytes) { return driver(cuMemHostAlloc(address, bytes, 0)); }
cudaError_t cudaHostAlloc(void **a, size_t bytes, unsigned flags) { return driver(cuMemHostAlloc(a, bytes, flags)); }
cudaError_t cudaFreeHost(void *address) { return driver(cuMemFreeHost(address)); }
cudaError_t cudaMemGetInfo(size_t *left, size_t *total) { return driver(cuMemGetInfo(left, total)); }
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind) {
  return driver(cuMemcpy(AT(to), AT(from), n));
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t stream) {
  return driver(cuMemcpyAsync(AT(to), AT(from), n, stream));
}
cudaError_t cudaMemset(void *at, int value, size_t n) { return driver(cuMemsetD8(AT(at), (unsigned char)value, n)); }
cudaError_t cudaMemsetAsync(void *at, int value, size_t n, cudaStream_t stream) { return cudaMemset(at, value, n); }
cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
  return find_variable(symbol, (CUdeviceptr *)address);
}
cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t n, size_t offset,
                                    enum cudaMemcpyKind kind, cudaStream_t stream) {
  CUdeviceptr address;
  cudaError_t status = find_variable(symbol, &address);
  return status ? status : driver(cuMemcpyAsync(address + offset, AT(from), n, stream));
}
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t n, size_t offset, enum cudaMemcpyKind kind) {
  return cudaMemcpyToSymbolAsync(symbol, from, n, offset, kind, NULL);
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address) {
  unsigned type;
  memset(attributes, 0, sizeof *attributes);
  attributes->hostPointer = (void *)address;
  if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, AT(address))) return cudaSuccess; /* plain host */
  attributes->type = type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->devicePointer = (void *)address;
  if (type == CU_MEMORYTYPE_DEVICE) attributes->hostPointer = NULL;
  return driver(cuPointerGetAttribute(&attributes->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, AT(address)));
}

/* ---- streams and events */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return driver(cuStreamCreate(stream, flags));
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return driver(cuStreamDestroy(stream)); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return driver(cuStreamSynchronize(stream)); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  return driver(cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status));
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { return driver(cuEventCreate(event, flags)); }
cudaError_t cudaEventCreate(cudaEvent_t *event) { return driver(cuEventCreate(event, 0)); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return driver(cuEventDestroy(event)); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return driver(cuEventSynchronize(event)); }
cudaError_t cudaEventElapsedTime(float *time, cudaEvent_t a, cudaEvent_t b) {
  return driver(cuEventElapsedTime(time, a, b));
}

/* The emulated devices: all alike, as the environment describes them. Without a description there is none. */
#include "nullgpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Device device;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static long number(const char *variable, long otherwise) {
  const char *text = getenv(variable);
  return text ? atol(text) : otherwise;
}

static void read_device(void) {
  const char *name = getenv("NULLGPU_NAME");
  device.count = name ? (int)number("NULLGPU_COUNT", 1) : 0;
  if (device.count > MOST_DEVICES) device.count = MOST_DEVICES;
  /* The mark is added here, so that no environment variable can leave it out. */
  snprintf(device.name, sizeof device.name, "%.100s (emulated)", name ? name : "none");
  device.capability = (int)number("NULLGPU_CAPABILITY", 75);
  device.multiprocessors = (int)number("NULLGPU_MULTIPROCESSORS", 40);
  device.memory = (size_t)number("NULLGPU_MEMORY", 15828320256);
  device.shared = (int)number("NULLGPU_SHARED", 65536);
  device.threads = (int)number("NULLGPU_THREADS", 1024);
  device.blocks = (int)number("NULLGPU_BLOCKS", 16);
  device.driver = (int)number("NULLGPU_DRIVER", 12060);
}

const Device *ng_device(void) {
  pthread_once(&once, read_device);
  return &device;
}

static CUresult known(CUdevice ordinal) {
  return ordinal >= 0 && ordinal < ng_device()->count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuInit(unsigned flags) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  return ng_device()->count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
CUresult cuDriverGetVersion(int *version) {
  *version = ng_device()->driver;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
  *count = ng_device()->count;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *result, int ordinal) {
  *result = ordinal;
  return known(ordinal);
}
CUresult cuDeviceGetName(char *name, int size, CUdevice ordinal) {
  snprintf(name, (size_t)size, "%s", ng_device()->name);
  return known(ordinal);
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice ordinal) {
  *bytes = ng_device()->memory;
  return known(ordinal);
}
static CUresult identify(CUuuid *uuid, CUdevice ordinal) {
  memset(uuid->bytes, 0, sizeof uuid->bytes);
  snprintf(uuid->bytes, sizeof uuid->bytes, "emulated-%d", ordinal);
  return known(ordinal);
}
#undef cuDeviceGetUuid
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice ordinal) { return identify(uuid, ordinal); }
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal) { return identify(uuid, ordinal); }
CUresult cuDeviceGetPCIBusId(char *name, int size, CUdevice ordinal) {
  snprintf(name, (size_t)size, "0000:%02x:00.0", ordinal + 1);
  return known(ordinal);
}
CUresult cuDeviceGetByPCIBusId(CUdevice *ordinal, const char *name) {
  unsigned domain, bus;
  if (sscanf(name, "%x:%x", &domain, &bus) != 2) return CUDA_ERROR_INVALID_VALUE;
  *ordinal = (CUdevice)bus - 1;
  return known(*ordinal);
}
CUresult cuDeviceCanAccessPeer(int *can, CUdevice ordinal, CUdevice peer) {
  *can = 0; /* as on cards without NVLink in most hosts */
  return known(ordinal) ? known(ordinal) : known(peer);
}
CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice ordinal) {
  *major = ng_device()->capability / 10;
  *minor = ng_device()->capability % 10;
  return known(ordinal);
}

static int attribute(CUdevice_attribute name, CUdevice ordinal) {
  const Device *it = ng_device();
  switch ((int)name) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH: return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 49152;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return it->shared;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return it->capability < 80 ? (it->capability == 60 ? 65536 : it->shared) : it->shared + 1024;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return it->capability < 80 ? 0 : 1024;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: return 512;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return it->multiprocessors;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return it->threads;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return it->blocks;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return it->capability / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return it->capability % 10;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return ordinal + 1;
    /* Only models of running time read these four; they are those of a T4. */
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1590000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 5001000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 256;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 4194304;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 3;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: return 1;
    default: return 0;
  }
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute name, CUdevice ordinal) {
  *value = attribute(name, ordinal);
  return known(ordinal);
}

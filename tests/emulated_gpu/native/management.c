/* NVML, without which TensorFlow from 2.21 on uses no GPU. Its header is not in TensorFlow's wheel, so a handle is a
 * plain pointer here: the number of the device and one. What is not here is missing, as in an old driver.
 */
#include "nullgpu.h"

#include <stdint.h>
#include <stdio.h>

enum { NOT_FOUND = 6 };

int nvmlInit(void) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int error) { return error ? "not found on the emulated GPU" : "success"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = (unsigned)ng_device()->count;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = (void *)(uintptr_t)(index + 1);
  return index < (unsigned)ng_device()->count ? 0 : NOT_FOUND;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *name, void **device) {
  CUdevice ordinal;
  if (cuDeviceGetByPCIBusId(&ordinal, name)) return NOT_FOUND;
  return nvmlDeviceGetHandleByIndex_v2((unsigned)ordinal, device);
}

/* Contexts, streams and events. Work is done at once, so streams are empty and events have happened. */
#include "nullgpu.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- contexts: one for each device; each thread has a stack of them */

static struct CUctx_st {
  int device;
} contexts[MOST_DEVICES] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
enum { DEEPEST = 63 };
static __thread CUcontext stack[DEEPEST + 1];
static __thread int depth;
static int retained[MOST_DEVICES];

int ng_current_device(void) { return stack[depth] ? stack[depth]->device : 0; }

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  if (device < 0 || device >= ng_device()->count) return CUDA_ERROR_INVALID_DEVICE;
  retained[device] = 1;
  *context = &contexts[device];
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  *flags = 0;
  *active = retained[device];
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  stack[depth] = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = stack[depth];
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  if (depth == DEEPEST) return CUDA_ERROR_INVALID_CONTEXT;
  stack[++depth] = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext *context) {
  if (context) *context = stack[depth];
  stack[depth] = NULL;
  if (depth) depth--;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *device) {
  if (!stack[depth]) return CUDA_ERROR_INVALID_CONTEXT;
  *device = stack[depth]->device;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
  *version = 3020;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}
static CUresult wait_for(const char *what) {
  ng_count("wait", what, 1);
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize(void) { return wait_for("device"); }

/* ---- streams */

struct CUstream_st {
  unsigned flags;
  int priority;
};
/* The null stream and the two default streams are small numbers and no pointers. */
static int made(CUstream stream) { return (size_t)stream > 2; }

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
  *stream = calloc(1, sizeof **stream);
  **stream = (struct CUstream_st){flags, priority};
  return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream *stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }
CUresult cuStreamDestroy(CUstream stream) { return CUDA_SUCCESS; }
CUresult cuStreamGetPriority(CUstream stream, int *priority) {
  *priority = made(stream) ? stream->priority : 0;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetFlags(CUstream stream, unsigned *flags) {
  *flags = made(stream) ? stream->flags : 0;
  return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  *status = ng_capturing() ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) { return wait_for("stream"); }
CUresult cuStreamQuery(CUstream stream) { return CUDA_SUCCESS; }
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) { return CUDA_SUCCESS; }
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
  function(data);
  return CUDA_SUCCESS;
}
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void *data, unsigned flags) {
  function(stream, CUDA_SUCCESS, data);
  return CUDA_SUCCESS;
}

/* ---- events */

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  *event = calloc(1, 1);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  free(event);
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) { return CUDA_SUCCESS; }
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) { return CUDA_SUCCESS; }
CUresult cuEventQuery(CUevent event) { return CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent event) { return wait_for("event"); }
CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
  *milliseconds = 0.01f; /* the same for all, so that a comparison of algorithms takes the first */
  return CUDA_SUCCESS;
}

/* ---- errors by name */

static const struct {
  CUresult error;
  const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for the device"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the PTX is newer than the driver"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported by the emulated device"},
};
CUresult cuGetErrorName(CUresult error, const char **name) {
  *name = "CUDA_ERROR_UNKNOWN";
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].error == error) *name = errors[i].name;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char **text) {
  *text = "unknown error of the emulated device";
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].error == error) *text = errors[i].text;
  return CUDA_SUCCESS;
}

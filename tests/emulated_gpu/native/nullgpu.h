/* Shared by the sources of the null GPU: a library that stands in for the CUDA driver and its companions, shows emulated
 * devices, counts what a program asks of them, and computes nothing.
 *
 * Written from the public CUDA and cuDNN headers that TensorFlow's wheel ships. None of NVIDIA's own libraries is loaded
 * or called: the private table behind cuGetExportTable, through which they recognise each other, is refused.
 */
#pragma once
#include <cuda.h>
#include <stddef.h>

enum { MOST_DEVICES = 8 };

/* ---- ledger.c: everything that is counted */

/* Add to the count of `name` in `group`; both are kept by copy. */
void ng_count(const char *group, const char *name, long amount);
/* As ng_count with a name made by a format, for what has numbers in it. */
void ng_countf(const char *group, long amount, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Count a request that a real device or driver would refuse too, and return the error. */
CUresult ng_refuse(CUresult error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- device.c: properties of the devices, read from the environment once */

typedef struct {
  char name[128];
  int count, capability, multiprocessors, shared, threads, blocks, driver;
  size_t memory;
} Device;

const Device *ng_device(void);
/* The device of the calling thread's current context; 0 without one. */
int ng_current_device(void);

/* ---- memory.c */

typedef enum { TO_DEVICE, TO_HOST, WITHIN_DEVICE, WITHIN_HOST } Direction;
Direction ng_direction(const void *to, const void *from);
/* Do and count one copy. */
void ng_copy(Direction direction, void *to, const void *from, size_t bytes);

/* ---- images.c: the code that a module has for the device */

typedef enum { NO_CODE, INVALID, BOUND_PTX, NEEDS_JIT, HAS_CUBIN } Code; /* BOUND_PTX: only PTX for other GPUs alone */
typedef struct {
  Code code;
  int driver; /* the CUDA whose driver can compile its PTX, as 1000 * major + 10 * minor; 0 if any */
} Image;

/* Inspect and count the fat binary of a program's own kernels, in the group "fat binary". */
Image ng_inspect_registered(const void *data);
/* Inspect and count what a program loads: a fat binary, a cubin or a PTX text, in the group "module". */
Image ng_inspect_loaded(const void *image);

/* ---- kernels.c */

CUmodule ng_make_module(void);

/* Count one launch of a kernel in a group: "launch", or "graph kernel" where a CUDA graph makes it. */
void ng_count_launch(CUfunction kernel, const char *group);

/* ---- libraries.c */

/* Count one call of a computing function of cuBLAS, cuDNN and so on; returns 0, which means success in all of them. */
int ng_call_library(const char *name);

/* ---- graph.c: work that a stream captures instead of doing it */

/* A kernel or a library call (by what is set), a copy, or a fill, which has no addresses. */
typedef struct {
  CUgraphNodeType type;
  CUfunction kernel;
  const char *library;
  void *to;
  const void *from;
  size_t bytes;
} Work;

int ng_capturing(void);
/* Whether the calling thread is capturing: then the work is kept for later and must not be done now. */
int ng_capture(Work work);

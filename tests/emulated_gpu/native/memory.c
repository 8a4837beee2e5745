/* Memory, copies and fills.
 *
 * Device memory is address space that nothing may touch: a host that reads or writes it crashes, as with a real card.
 * Nothing is kept in it, so copies to it and fills of it only count. What comes back from it is what no kernel has
 * computed: zero, or true where a single byte, the size of a condition, is asked for.
 */
#define _GNU_SOURCE
#include "nullgpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Memory of a CUDA context itself; on a T4, TensorFlow then finds the 13,942 MB that public logs show. */
#define CONTEXT_BYTES ((size_t)103 << 20)
/* How often in a row one address may be read as a condition before it turns false, so that device-side loops end. */
#define MOST_ROUNDS 100

typedef enum { DEVICE_MEMORY, HOST_MEMORY, MANAGED_MEMORY, REGISTERED_MEMORY } Kind;
typedef struct {
  char *start;
  size_t size;
  Kind kind;
  int device;
} Range;

static Range *ranges; /* sorted by address */
static size_t count, capacity, used[MOST_DEVICES], peak[MOST_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Index of the first range that begins behind the address. */
static size_t search(const void *address) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (ranges[middle].start <= (const char *)address) low = middle + 1;
    else high = middle;
  }
  return low;
}

static int find(const void *address, Range *found) {
  pthread_mutex_lock(&lock);
  size_t next = search(address);
  int known = next && (const char *)address < ranges[next - 1].start + ranges[next - 1].size;
  if (known) *found = ranges[next - 1];
  pthread_mutex_unlock(&lock);
  return known;
}

static void add(Range range) { /* with the lock held */
  if (count == capacity) ranges = realloc(ranges, sizeof *ranges * (capacity = capacity ? 2 * capacity : 64));
  size_t place = search(range.start);
  memmove(ranges + place + 1, ranges + place, sizeof *ranges * (count++ - place));
  ranges[place] = range;
}

static int drop(void *address) {
  pthread_mutex_lock(&lock);
  size_t next = search(address);
  int known = next && ranges[next - 1].start == address;
  if (known) {
    Range range = ranges[next - 1];
    memmove(ranges + next - 1, ranges + next, sizeof *ranges * (count-- - next));
    if (range.kind == DEVICE_MEMORY || range.kind == MANAGED_MEMORY) used[range.device] -= range.size;
    if (range.kind != REGISTERED_MEMORY) munmap(range.start, range.size);
  }
  pthread_mutex_unlock(&lock);
  return known;
}

static CUresult allocate(void **result, size_t bytes, Kind kind) {
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  size_t size = (bytes + 4095) & ~(size_t)4095;
  int device = ng_current_device(), on_device = kind != HOST_MEMORY;
  size_t total = ng_device()->memory;
  pthread_mutex_lock(&lock);
  CUresult status = CUDA_SUCCESS;
  if (on_device && used[device] + size + CONTEXT_BYTES > total) {
    status = CUDA_ERROR_OUT_OF_MEMORY;
  } else {
    void *place = mmap(NULL, size, kind == DEVICE_MEMORY ? PROT_NONE : PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) {
      status = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
      add((Range){place, size, kind, device});
      if (on_device && (used[device] += size) > peak[device]) peak[device] = used[device];
      *result = place;
    }
  }
  size_t in_use = used[device];
  pthread_mutex_unlock(&lock);
  return status ? ng_refuse(status, "allocation of %zu bytes with %zu of %zu in use", bytes, in_use, total) : status;
}

CUresult cuMemAlloc(CUdeviceptr *result, size_t bytes) { return allocate((void **)result, bytes, DEVICE_MEMORY); }
CUresult cuMemAllocAsync(CUdeviceptr *result, size_t bytes, CUstream stream) { return cuMemAlloc(result, bytes); }
CUresult cuMemAllocManaged(CUdeviceptr *result, size_t bytes, unsigned flags) {
  return allocate((void **)result, bytes, MANAGED_MEMORY);
}
CUresult cuMemHostAlloc(void **result, size_t bytes, unsigned flags) { return allocate(result, bytes, HOST_MEMORY); }
CUresult cuMemAllocHost(void **result, size_t bytes) { return allocate(result, bytes, HOST_MEMORY); }
static CUresult release(void *address) {
  return !address || drop(address) ? CUDA_SUCCESS : ng_refuse(CUDA_ERROR_INVALID_VALUE, "free of unknown memory");
}
CUresult cuMemFree(CUdeviceptr address) { return release((void *)address); }
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) { return release((void *)address); }
CUresult cuMemFreeHost(void *address) { return release(address); }
CUresult cuMemHostRegister(void *address, size_t bytes, unsigned flags) {
  pthread_mutex_lock(&lock);
  add((Range){address, bytes, REGISTERED_MEMORY, 0});
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void *address) { return release(address); }
CUresult cuMemHostGetDevicePointer(CUdeviceptr *result, void *address, unsigned flags) {
  *result = (CUdeviceptr)address;
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(size_t *left, size_t *total) {
  int device = ng_current_device();
  pthread_mutex_lock(&lock);
  *total = ng_device()->memory;
  *left = *total > CONTEXT_BYTES + used[device] ? *total - CONTEXT_BYTES - used[device] : 0;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}
CUresult cuMemGetAddressRange(CUdeviceptr *start, size_t *size, CUdeviceptr address) {
  Range range;
  if (!find((void *)address, &range)) return CUDA_ERROR_NOT_FOUND;
  if (start) *start = (CUdeviceptr)range.start;
  if (size) *size = range.size;
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute name, CUdeviceptr address) {
  Range range;
  if (!find((void *)address, &range)) return CUDA_ERROR_INVALID_VALUE;
  int host = range.kind == HOST_MEMORY || range.kind == REGISTERED_MEMORY;
  switch ((int)name) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)value = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)value = address; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (range.kind == DEVICE_MEMORY) return CUDA_ERROR_INVALID_VALUE;
      *(void **)value = (void *)address;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)value = range.kind == MANAGED_MEMORY; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = range.device; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)value = (CUdeviceptr)range.start; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = range.size; break;
    default: return ng_refuse(CUDA_ERROR_NOT_SUPPORTED, "pointer attribute %d", name);
  }
  return CUDA_SUCCESS;
}

/* ---- copies */

static int on_device(const void *address) {
  Range range;
  return find(address, &range) && range.kind == DEVICE_MEMORY;
}

Direction ng_direction(const void *to, const void *from) {
  int into = on_device(to), out = on_device(from);
  return into ? (out ? WITHIN_DEVICE : TO_DEVICE) : (out ? TO_HOST : WITHIN_HOST);
}

static int read_condition(const void *from) {
  static const void *last;
  static int rounds;
  static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&turn);
  rounds = from == last ? rounds + 1 : 1;
  last = from;
  int answer = rounds <= MOST_ROUNDS;
  if (!answer) rounds = 0;
  pthread_mutex_unlock(&turn);
  return answer;
}

void ng_copy(Direction direction, void *to, const void *from, size_t bytes) {
  static const char *const names[] = {"to device", "to host", "within device", "within host"};
  ng_countf("copy", 1, "%s %zu", names[direction], bytes);
  if (direction == WITHIN_HOST) memmove(to, from, bytes);
  else if (direction == TO_HOST) memset(to, bytes == 1 ? read_condition(from) : 0, bytes);
}

static CUresult copy(void *to, const void *from, size_t bytes) {
  if (!bytes || ng_capture((Work){CU_GRAPH_NODE_TYPE_MEMCPY, .to = to, .from = from, .bytes = bytes})) return CUDA_SUCCESS;
  ng_copy(ng_direction(to, from), to, from, bytes);
  return CUDA_SUCCESS;
}
/* A copy that returns when it is done makes the host wait for all work before it. */
static CUresult copy_and_wait(void *to, const void *from, size_t bytes) {
  if (bytes && !ng_capturing()) ng_count("wait", "copy", 1);
  return copy(to, from, bytes);
}
#define AT(address) ((void *)(address))
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) { return copy_and_wait(AT(to), AT(from), n); }
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t n) { return copy_and_wait(AT(to), from, n); }
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t n) { return copy_and_wait(to, AT(from), n); }
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t n) { return copy(AT(to), AT(from), n); }
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) { return copy(AT(to), AT(from), n); }
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t n, CUstream s) { return copy(AT(to), from, n); }
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t n, CUstream s) { return copy(to, AT(from), n); }
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) { return copy(AT(to), AT(from), n); }
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext a, CUdeviceptr from, CUcontext b, size_t n, CUstream s) {
  return copy(AT(to), AT(from), n);
}

/* ---- fills */

static CUresult fill(void *address, unsigned value, int width, size_t items) {
  size_t bytes = items * (size_t)width;
  if (!bytes || ng_capture((Work){CU_GRAPH_NODE_TYPE_MEMSET, .bytes = bytes})) return CUDA_SUCCESS;
  ng_countf("fill", 1, "%zu", bytes);
  if (on_device(address)) return CUDA_SUCCESS;
  for (size_t i = 0; i < items; i++) memcpy((char *)address + i * (size_t)width, &value, (size_t)width);
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8(CUdeviceptr at, unsigned char value, size_t n) { return fill(AT(at), value, 1, n); }
CUresult cuMemsetD16(CUdeviceptr at, unsigned short value, size_t n) { return fill(AT(at), value, 2, n); }
CUresult cuMemsetD32(CUdeviceptr at, unsigned value, size_t n) { return fill(AT(at), value, 4, n); }
CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char v, size_t n, CUstream s) { return fill(AT(at), v, 1, n); }
CUresult cuMemsetD16Async(CUdeviceptr at, unsigned short v, size_t n, CUstream s) { return fill(AT(at), v, 2, n); }
CUresult cuMemsetD32Async(CUdeviceptr at, unsigned v, size_t n, CUstream s) { return fill(AT(at), v, 4, n); }

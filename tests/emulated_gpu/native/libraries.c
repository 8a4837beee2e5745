/* cuBLAS, cuBLASLt and cuDNN: their handles, modes and descriptors. Their computing functions are generated: each counts
 * one call. Nothing asks for a workspace, and no algorithm is refused. */
#include "nullgpu.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cudnn.h>
#include <stdlib.h>
#include <string.h>

int ng_call_library(const char *name) {
  if (!ng_capture((Work){CU_GRAPH_NODE_TYPE_KERNEL, .library = name})) ng_count("library", name, 1);
  return 0;
}

static int version_part(libraryPropertyType part, int major, int minor, int patch, int *value) {
  *value = part == MAJOR_VERSION ? major : part == MINOR_VERSION ? minor : patch;
  return 0;
}

/* ---- cuBLAS: a handle remembers its modes */

struct cublasContext {
  cudaStream_t stream;
  cublasMath_t math;
  cublasPointerMode_t pointer;
  cublasAtomicsMode_t atomics;
};
cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
  *handle = calloc(1, sizeof **handle);
  return CUBLAS_STATUS_SUCCESS;
}
#define MODE(Setter, Getter, type, field)                    \
  cublasStatus_t Setter(cublasHandle_t handle, type value) { \
    handle->field = value;                                   \
    return CUBLAS_STATUS_SUCCESS;                            \
  }                                                          \
  cublasStatus_t Getter(cublasHandle_t handle, type *value) { \
    *value = handle->field;                                  \
    return CUBLAS_STATUS_SUCCESS;                            \
  }
MODE(cublasSetStream_v2, cublasGetStream_v2, cudaStream_t, stream)
MODE(cublasSetMathMode, cublasGetMathMode, cublasMath_t, math)
MODE(cublasSetPointerMode_v2, cublasGetPointerMode_v2, cublasPointerMode_t, pointer)
MODE(cublasSetAtomicsMode, cublasGetAtomicsMode, cublasAtomicsMode_t, atomics)
cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetProperty(libraryPropertyType part, int *value) {
  return version_part(part, CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH, value);
}

/* ---- descriptors: attributes by number, for cuBLASLt and cuDNN's graphs */

typedef struct Attribute {
  int key, type;
  int64_t count;
  size_t size;
  void *data;
  struct Attribute *next;
} Attribute;
typedef struct {
  int type;
  Attribute *attributes;
} Descriptor;

static Attribute *find(const Descriptor *descriptor, int key) {
  Attribute *it = descriptor->attributes;
  while (it && it->key != key) it = it->next;
  return it;
}
static void put(Descriptor *descriptor, int key, int type, int64_t count, const void *data, size_t size) {
  Attribute *it = find(descriptor, key);
  if (!it) {
    it = calloc(1, sizeof *it);
    it->key = key;
    it->next = descriptor->attributes;
    descriptor->attributes = it;
  }
  free(it->data);
  it->data = memcpy(malloc(size ? size : 1), data, size);
  it->type = type;
  it->count = count;
  it->size = size;
}

/* ---- cuBLASLt: one algorithm for everything */

#define DESCRIPTOR(Kind, Handle, Name)                                                                       \
  cublasStatus_t cublasLt##Kind##SetAttribute(Handle it, Name name, const void *data, size_t size) {         \
    put((Descriptor *)it, name, 0, 1, data, size);                                                           \
    return CUBLAS_STATUS_SUCCESS;                                                                            \
  }                                                                                                          \
  cublasStatus_t cublasLt##Kind##GetAttribute(Handle it, Name name, void *data, size_t size, size_t *used) { \
    const Attribute *found = find((Descriptor *)it, name);                                                   \
    if (used) *used = size;                                                                                  \
    if (data) memset(data, 0, size);                                                                         \
    if (data && found) memcpy(data, found->data, size < found->size ? size : found->size);                   \
    return CUBLAS_STATUS_SUCCESS;                                                                            \
  }
DESCRIPTOR(MatmulDesc, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t)
DESCRIPTOR(MatrixLayout, cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t)
DESCRIPTOR(MatmulPreference, cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t)
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *it, cublasComputeType_t compute, cudaDataType_t scale) {
  *it = calloc(1, sizeof(Descriptor));
  put((Descriptor *)*it, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 0, 1, &compute, sizeof compute);
  put((Descriptor *)*it, CUBLASLT_MATMUL_DESC_SCALE_TYPE, 0, 1, &scale, sizeof scale);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *it, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t leading) {
  *it = calloc(1, sizeof(Descriptor));
  put((Descriptor *)*it, CUBLASLT_MATRIX_LAYOUT_TYPE, 0, 1, &type, sizeof type);
  put((Descriptor *)*it, CUBLASLT_MATRIX_LAYOUT_ROWS, 0, 1, &rows, sizeof rows);
  put((Descriptor *)*it, CUBLASLT_MATRIX_LAYOUT_COLS, 0, 1, &columns, sizeof columns);
  put((Descriptor *)*it, CUBLASLT_MATRIX_LAYOUT_LD, 0, 1, &leading, sizeof leading);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found) {
  *found = wanted > 0;
  if (*found) memset(results, 0, sizeof *results);
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- cuDNN: queries of the older functions */

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion(void) { return 12000; }
cudnnStatus_t cudnnGetProperty(libraryPropertyType part, int *value) {
  return version_part(part, CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL, value);
}
const char *cudnnGetErrorString(cudnnStatus_t status) {
  return status ? "an error of the emulated cuDNN" : "CUDNN_STATUS_SUCCESS";
}
void cudnnGetLastErrorString(char *text, size_t size) {
  if (size) *text = 0;
}
cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t z, const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t scale,
    const cudnnActivationDescriptor_t activation, size_t *bytes) {
  *bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t dy, const cudnnTensorDescriptor_t dz,
    const cudnnTensorDescriptor_t dx, const cudnnTensorDescriptor_t scale, const cudnnActivationDescriptor_t activation,
    size_t *bytes) {
  *bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnnHandle_t handle, cudnnBatchNormMode_t mode,
                                                                   cudnnBatchNormOps_t ops,
                                                                   const cudnnActivationDescriptor_t activation,
                                                                   const cudnnTensorDescriptor_t x, size_t *bytes) {
  *bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}

/* ---- cuDNN's graphs: descriptors that point to each other; every operation has one engine, number 0 */

static size_t width(cudnnBackendAttributeType_t type) {
  switch ((int)type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE: return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_FRACTION: return sizeof(cudnnFraction_t);
    default: return 4;
  }
}
/* The descriptor that an attribute of another holds, its first if there are several. */
static Descriptor *follow(const Descriptor *descriptor, cudnnBackendAttributeName_t name) {
  const Attribute *found = descriptor ? find(descriptor, name) : NULL;
  return found && found->count ? *(Descriptor **)found->data : NULL;
}
static void refer(Descriptor *descriptor, cudnnBackendAttributeName_t name, Descriptor *to) {
  put(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to, sizeof to);
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *result) {
  Descriptor *descriptor = calloc(1, sizeof *descriptor);
  descriptor->type = type;
  *result = descriptor;
  return CUDNN_STATUS_SUCCESS;
}
/* Not freed: a plan still points to a graph that the caller has destroyed. */
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *data) {
  put(descriptor, name, type, count, data, (size_t)count * width(type));
  return CUDNN_STATUS_SUCCESS;
}

/* What a heuristic finds: the one engine for its operation graph, as a configuration that the caller has created. */
static void answer_heuristic(const Descriptor *heuristic, Descriptor *configuration) {
  Descriptor *engine = calloc(1, sizeof *engine);
  int64_t number = 0;
  engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
  put(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number, sizeof number);
  refer(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, follow(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
  refer(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
}
/* The caller brings empty descriptors; they get the attributes of those that are asked for. */
static int64_t answer_descriptors(const Attribute *held, int64_t wanted, Descriptor **into) {
  int64_t count = held->count < wanted ? held->count : wanted;
  for (int64_t i = 0; i < count; i++) {
    const Attribute *it = ((Descriptor **)held->data)[i]->attributes;
    for (; into[i] && it; it = it->next) put(into[i], it->key, it->type, it->count, it->data, it->size);
  }
  return count;
}
static int64_t answer_number(int64_t number, void *data) {
  if (data) *(int64_t *)data = number;
  return 1;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t *found, void *data) {
  const Attribute *held = find(descriptor, name);
  int64_t unused, *count = found ? found : &unused;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    *count = 1;
    if (wanted && data) answer_heuristic(descriptor, *(Descriptor **)data);
  } else if (held && held->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && wanted && data) {
    *count = answer_descriptors(held, wanted, data);
  } else if (held) {
    *count = held->count;
    if (wanted && data) memcpy(data, held->data, (size_t)(wanted < held->count ? wanted : held->count) * width(type));
  } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE || name == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE) {
    *count = answer_number(0, data);
  } else if (name == CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT) {
    *count = answer_number(1, data);
  } else if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) {
    static const char empty[] = "{}";
    *count = sizeof empty;
    if (wanted && data) memcpy(data, empty, (size_t)(wanted < *count ? wanted : *count));
  } else {
    *count = 0; /* no notes, no knobs */
  }
  return CUDNN_STATUS_SUCCESS;
}
static const char *name_operation(const Descriptor *operation) {
  switch (operation ? operation->type : -1) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: return "cudnn convolution forward";
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: return "cudnn convolution backward filter";
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: return "cudnn convolution backward data";
    default: return "cudnn graph";
  }
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t variants) {
  const Descriptor *engine = follow(follow(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINECFG_ENGINE);
  const Descriptor *graph = engine ? follow(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH) : NULL;
  return (cudnnStatus_t)ng_call_library(name_operation(follow(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)));
}

// The part of TensorFlow's C interface that operations need (tensorflow/c/kernels.h, ops.h, tf_tensor.h, tf_status.h).
//
// The declarations are our own: the library then builds without TensorFlow, and one binary serves all versions whose
// libtensorflow_framework exports these symbols. They are weak, so that the library also loads without TensorFlow, for
// its self-check; it then registers nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#define TOOLKIT_WEAK __attribute__((weak))

extern "C" {

struct TSL_Status;
struct TF_Tensor;
struct TF_KernelBuilder;
struct TF_OpDefinitionBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_ShapeInferenceContext;

constexpr int TF_FLOAT = 1, TF_INT32 = 3, TF_BFLOAT16 = 14;                   // of TF_DataType
constexpr int TF_OK = 0, TF_INVALID_ARGUMENT = 3, TF_RESOURCE_EXHAUSTED = 8;  // of TF_Code

TSL_Status *TF_NewStatus() TOOLKIT_WEAK;
void TF_DeleteStatus(TSL_Status *) TOOLKIT_WEAK;
void TF_SetStatus(TSL_Status *, int code, const char *message) TOOLKIT_WEAK;
int TF_GetCode(const TSL_Status *) TOOLKIT_WEAK;
const char *TF_Message(const TSL_Status *) TOOLKIT_WEAK;

void TF_DeleteTensor(TF_Tensor *) TOOLKIT_WEAK;
int TF_TensorType(const TF_Tensor *) TOOLKIT_WEAK;
int TF_NumDims(const TF_Tensor *) TOOLKIT_WEAK;
int64_t TF_Dim(const TF_Tensor *, int axis) TOOLKIT_WEAK;
void *TF_TensorData(const TF_Tensor *) TOOLKIT_WEAK;

TF_OpDefinitionBuilder *TF_NewOpDefinitionBuilder(const char *name) TOOLKIT_WEAK;
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder *, const char *) TOOLKIT_WEAK;
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder *, const char *) TOOLKIT_WEAK;
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder *, const char *) TOOLKIT_WEAK;
void TF_OpDefinitionBuilderSetShapeInferenceFunction(TF_OpDefinitionBuilder *,
                                                     void (*)(TF_ShapeInferenceContext *, TSL_Status *)) TOOLKIT_WEAK;
void TF_ShapeInferenceContextSetUnknownShape(TF_ShapeInferenceContext *, TSL_Status *) TOOLKIT_WEAK;
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder *, TSL_Status *) TOOLKIT_WEAK;

TF_KernelBuilder *TF_NewKernelBuilder(const char *name, const char *device, void *(*create)(TF_OpKernelConstruction *),
                                      void (*compute)(void *, TF_OpKernelContext *), void (*destroy)(void *))
    TOOLKIT_WEAK;
void TF_KernelBuilder_TypeConstraint(TF_KernelBuilder *, const char *attribute, int type, TSL_Status *) TOOLKIT_WEAK;
void TF_RegisterKernelBuilder(const char *name, TF_KernelBuilder *, TSL_Status *) TOOLKIT_WEAK;

int TF_NumInputs(TF_OpKernelContext *) TOOLKIT_WEAK;
int TF_NumOutputs(TF_OpKernelContext *) TOOLKIT_WEAK;
void TF_GetInput(TF_OpKernelContext *, int index, TF_Tensor **, TSL_Status *) TOOLKIT_WEAK;
TF_Tensor *TF_AllocateOutput(TF_OpKernelContext *, int index, int type, const int64_t *sizes, int rank, size_t bytes,
                             TSL_Status *) TOOLKIT_WEAK;
TF_Tensor *TF_ForwardInputOrAllocateOutput(TF_OpKernelContext *, const int *inputs, int count, int output,
                                           const int64_t *sizes, int rank, int *forwarded, TSL_Status *) TOOLKIT_WEAK;
TF_Tensor *TF_AllocateTemp(TF_OpKernelContext *, int type, const int64_t *sizes, int rank, void *attributes,
                           TSL_Status *) TOOLKIT_WEAK;
void TF_OpKernelContext_Failure(TF_OpKernelContext *, TSL_Status *) TOOLKIT_WEAK;

}  // extern "C"

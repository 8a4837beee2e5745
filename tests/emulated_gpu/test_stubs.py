import pytest

from tests.emulated_gpu import library

HEADER = """
#define cuMemAlloc cuMemAlloc_v2
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *dptr, size_t bytesize);
CUresult CUDAAPI cuMemAlloc_v2_ptsz(CUdeviceptr *dptr, size_t bytesize);
cublasStatus_t CUBLASWINAPI cublasSgemm_v2 (cublasHandle_t handle);
typedef void (CUDA_CB *CUhostFn)(void *userData);
"""


def test_names_are_those_of_the_headers() -> None:
    assert library.list_names([HEADER]) == ["cuMemAlloc", "cuMemAlloc_v2", "cublasSgemm_v2"]


@pytest.mark.parametrize("name", ["cublasSgemm_v2", "cudnnPoolingForward", "cufftExecR2C", "cublasLtMatmul"])
def test_what_computes_is_counted(name: str) -> None:
    assert library.answer(name) == f'return ng_call_library("{name}");'


@pytest.mark.parametrize("name", ["cudnnSetTensorNdDescriptor", "cublasDestroy_v2", "cuModuleUnload"])
def test_what_answers_nothing_succeeds(name: str) -> None:
    assert library.answer(name) == "return 0;"


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("cuGetExportTable", 801),
        ("cudaGetTextureObjectResourceDesc", 801),
        ("cudnnGetConvolutionForwardAlgorithm_v7", 3000),
        ("cusolverDnDpotrf_bufferSize", 9),
    ],
)
def test_what_must_answer_is_refused_and_counted(name: str, status: int) -> None:
    assert library.answer(name) == f'ng_count("not emulated", "{name}", 1); return {status};'

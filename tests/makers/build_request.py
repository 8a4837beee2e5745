from toolkit.wheel.build_options import BuildOptions

GIVEN = {
    "DEVICE": "cuda",
    "TENSORFLOW_VERSION": "2.19.0",
    "CUDA_VERSION": "12.6.1",
    "CUDNN_VERSION": "9.5.0",
    "PYTHON_VERSION": "3.11",
    "COMPUTE_CAPABILITIES": "7.5",
    "LLVM_VERSION": "17",
}
OTHER = BuildOptions(
    compute_capability=("8.0", "9.0"),
    source="tree",
    bazel="docker-image://bazel",
    bazel_argument=("--copt=-O1", "--keep_going"),
    cpu_target="x86-64-v3",
    jobs=3,
    memory=5,
    remote_cache="grpc://cache:1",
    remote_executor="grpc://executor:2",
    remote_instance_name="main",
    bazelrc="secrets",
    cache="other",
    apt_snapshot="20261121T000000Z",
    exact=True,
    prove_kernels="20",
)
"""A value for each option that is not its default."""

from toolkit.wheel.inspection import BuildInfo, Inspection

GOOD = Inspection(
    file="tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl",
    digest="sha256:" + "0" * 64,
    bytes=1,
    unpacked_bytes=1,
    name="tensorflow",
    version="2.19.0",
    pythons=("cp311",),
    platforms=("linux_x86_64",),
    build=BuildInfo(is_cuda=True, cuda="12.6.1", cudnn="9", capabilities=("compute_75",)),
    needed=("libc.so.6",),
    symbols={"GLIBC": "2.38"},
    architectures=("sm_75", "compute_75"),
)

"""The stage ``bazel-build``: runs inside the container, needs nothing but Python."""

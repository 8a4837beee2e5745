NEEDS_TENSORFLOW = ("cpu.onednn", "numerics", "xla", "determinism")
NEEDS_GPU = {f"device.{name}" for name in ("driver", "visible", "capability", "operation", "memory")}

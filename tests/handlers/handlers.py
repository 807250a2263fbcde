"""Crashes with Python's fault handler enabled, after the device has copied from unmapped memory.

The first argument is the library of `unmapped_copy.c`; without it no device is used.
"""
import ctypes
import faulthandler
import resource
import sys

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
faulthandler.enable()
if len(sys.argv) > 1:
    device = ctypes.CDLL(sys.argv[1])
    if device.register_page() != 0 or device.copy_from_unmapped_memory() != 0:
        sys.exit(1)
print("before the crash", flush=True)
ctypes.string_at(0)

"""What the compiler needs on this machine, found without importing it."""

import os
from importlib.util import find_spec
from shutil import which


def missing(device_type: str) -> list[str]:
    """Every reason why nothing can be compiled for devices of a type, such as ``cpu``.

    Each reads on from the backend's name. No compiler is started.
    """
    if device_type == "cpu":
        # Inductor takes CXX as the name of a program, without arguments, or else g++.
        if which(os.environ.get("CXX", "g++")):
            return []
        return ["needs a C++ compiler: apt install g++, or set CXX"]
    reasons = []
    if find_spec("triton") is None:
        reasons.append("needs triton: pip install triton")
    # Triton compiles the launcher of every kernel.
    names = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    if not any(map(which, names)):
        reasons.append("needs a C compiler: apt install gcc, or set CC")
    return reasons

"""Calls load_inline with the arguments on standard input; `build_cache` starts it."""

from __future__ import annotations

import json
import shlex
import sys

from torch.utils import cpp_extension

from bindings import toolchain


def main() -> None:
    """Builds one module; exits with the compilers' output if that fails."""
    request = json.load(sys.stdin)
    toolchain.put_ninja_on_path()
    toolchain.limit_parallel_jobs()
    # torch disables the operators of half, which kernels use.
    request["extra_cuda_cflags"] += [
        flag.replace("-D", "-U", 1)
        for flag in cpp_extension.COMMON_NVCC_FLAGS
        if flag.startswith("-D__CUDA_NO_")
    ]
    # torch puts the path into a shell command unquoted, where a space would end it.
    cpp_extension.TORCH_LIB_PATH = shlex.quote(cpp_extension.TORCH_LIB_PATH)
    cpp_extension.load_inline(**request, no_implicit_headers=True)


if __name__ == "__main__":
    try:
        main()
    except (ImportError, OSError, RuntimeError) as error:
        sys.exit(str(error))

"""Builds the two native modules; everything else stands in pyproject.toml.

`_cpu` (the kernels in the emulator) is built always, `_cuda` where an nvcc is found and
torch is a CUDA build. Neither depends on torch: they hold under any version of it.

After an edit `python setup.py build_ext --inplace` rebuilds what changed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent


def load_by_path(name: str) -> ModuleType:
    """Imports a file of `bindings` without the package, which imports torch."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"bindings/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sources = load_by_path("sources")
toolchain = load_by_path("toolchain")

try:
    import torch
except ModuleNotFoundError as error:
    raise SystemExit(
        f"a build without isolation needs torch: {sys.executable} -m pip install torch"
    ) from error

# One folder for each Python, kept between installs so that only edits are compiled.
BUILD = Path("build", f"native-{sys.implementation.cache_tag}")


# The modules are plain setuptools extensions, not torch's CppExtension, which would add
# the headers and libraries of torch.


def sources_of(module: str) -> list[str]:
    """Returns what a module is compiled from, in relative paths for setuptools."""
    files = sources.write_sources(module, BUILD / module)
    return [os.path.relpath(path, ROOT) for path in files]


def pybind11_folder() -> str:
    """Returns where pybind11's headers are: in its package, else in torch's copy."""
    if importlib.util.find_spec("pybind11") is None:
        return str(Path(torch.__file__).parent / "include")
    folder: str = importlib.import_module("pybind11").get_include()
    return folder


def cpu_extension() -> Extension:
    """Describes the module that runs the kernels in the emulator."""
    return Extension(
        "bindings._cpu",
        sources=sources_of("_cpu"),
        include_dirs=[*map(str, sources.include_folders("_cpu")), pybind11_folder()],
        language="c++",
        extra_compile_args=list(sources.EMULATED_FLAGS),
        extra_link_args=["-pthread"],
    )


def cuda_extension(cuda_home: Path) -> Extension:
    """Describes the module that runs the kernels on a GPU."""
    nvcc_flags = [
        *sources.NVCC_FLAGS,
        *toolchain.gencode_flags(),
        *toolchain.kernel_symbol_flags(toolchain.nvcc_version(cuda_home)),
        # torch defines these, which take the operators of half away.
        "-U__CUDA_NO_HALF_OPERATORS__",
        "-U__CUDA_NO_HALF_CONVERSIONS__",
        "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
        "-U__CUDA_NO_HALF2_OPERATORS__",
    ]
    return Extension(
        "bindings._cuda",
        sources=sources_of("_cuda"),
        include_dirs=[
            *map(str, sources.include_folders("_cuda")),
            str(cuda_home / "include"),
            pybind11_folder(),
        ],
        language="c++",
        # A list for each compiler is an addition of torch's.
        extra_compile_args={  # type: ignore[arg-type]
            "cxx": list(sources.CXX_FLAGS),
            "nvcc": nvcc_flags,
        },
        library_dirs=[str(toolchain.cuda_runtime_folder(cuda_home))],
        # The static runtime: a shared one would have to be found again at run time.
        libraries=["cudart_static", "rt", "dl", "pthread"],
    )


os.chdir(ROOT)
try:
    toolchain.put_ninja_on_path()
except RuntimeError as error:
    print(f"{error} (without it every file is compiled, one after the other)")
toolchain.limit_parallel_jobs()
extensions = [cpu_extension()]
if obstacle := toolchain.cuda_obstacle(torch.__version__, torch.version.cuda):
    print(f"bindings._cuda is not built: {obstacle}")
else:
    cuda_home = toolchain.find_cuda_home()
    extensions.append(cuda_extension(cuda_home))
    # Read when cpp_extension is imported, which would else trust a wrapper's place.
    os.environ["CUDA_HOME"] = str(cuda_home)

from torch.utils.cpp_extension import BuildExtension  # noqa: E402


class BuildNative(BuildExtension):
    """Compiles each module in a folder of its own, which later builds find again."""

    def finalize_options(self) -> None:
        """Leaves it to ninja what is out of date: setuptools knows no header."""
        super().finalize_options()
        self.force = True

    def build_extension(self, ext: Extension) -> None:
        """Builds one module."""
        # Both modules have a bindings.o, and torch writes one build.ninja to a folder.
        self.build_temp = str(BUILD / ext.name.rpartition(".")[2])
        super().build_extension(ext)


setup(ext_modules=extensions, cmdclass={"build_ext": BuildNative})

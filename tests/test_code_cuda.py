"""Compiling one kernel of a .cu file, and caching the result."""

from __future__ import annotations

import errno
import re
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from bindings.disk_cache import folder_of
from bindings.toolchain import find_cuda_home
from compare.code import cache, cuda, tools
from compare.code.architectures import ARCHITECTURES, Architecture
from compare.errors import CodegenUnavailable, CompilationFailed

HOPPER = ARCHITECTURES[90]

needs_nvcc = pytest.mark.skipif(find_cuda_home() is None, reason="needs nvcc")

TOY = """
#include "toy.cuh"
template <typename T>
__global__ void copy(T* out, const T* in) {
    out[threadIdx.x] = in[threadIdx.x];
}
__global__ void plain(float* out) {
    __shared__ float kept[VALUES];
    kept[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = kept[VALUES - 1 - threadIdx.x];
}
// More values at a time than registers.
__global__ void __launch_bounds__(1024, 2) crowded(float* out, const float* in) {
    float values[VALUES];
    for (int i = 0; i < VALUES; ++i) values[i] = in[i * 1024 + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < VALUES; ++i) out[i * 1024 + threadIdx.x] = sqrtf(values[i]);
}
"""
COPY = {"_Z4copyIfEvPT_PKS0_": "void copy<float>(float*, float const*)"}
PLAIN = {"_Z5plainPf": "plain(float*)"}
CROWDED = {"_Z7crowdedPfPKf": "crowded(float*, float const*)"}


def compile_toy(
    signatures: dict[str, str], architecture: Architecture = HOPPER
) -> cuda.CudaBuild:
    """The first of the kernels."""
    return next(iter(cuda.compile_kernels("toy", signatures, architecture).values()))


def report_of(build: cuda.CudaBuild) -> tools.AssemblerReport:
    return tools.parse_assembler_report(build.log, build.kernel)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of CUDA files of its own, and an empty cache."""
    folder = tmp_path / "csrc"
    (folder / "toy").mkdir(parents=True)
    (folder / "toy/toy.cu").write_text(TOY)
    (folder / "toy.cuh").write_text("constexpr int VALUES = 64;\n")
    monkeypatch.setattr(cuda, "CSRC", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@needs_nvcc
def test_one_instance_is_compiled(sources: Path) -> None:
    build = compile_toy(COPY)
    assert build.ptx.count(".entry _Z4copy") == 1
    assert f".entry {next(iter(COPY))}(" in build.ptx
    assert ".target sm_90a" in build.ptx
    assert str(sources / "toy/toy.cu") in build.ptx
    assert build.compiler.startswith("nvcc 1")
    assert report_of(build) == tools.AssemblerReport(0, 0)


@needs_nvcc
def test_what_was_compiled_is_compiled_again_only_if_a_source_changed(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_toy(COPY)
    with monkeypatch.context() as patch:
        patch.setattr(tools, "run", None)
        assert compile_toy(COPY) == first
    (sources / "toy/toy.cu").write_text(TOY.replace("in[threadIdx.x];", "2 * in[0];"))
    assert compile_toy(COPY).ptx != first.ptx


@needs_nvcc
def test_another_checkout_compiles_nothing_again(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_toy(COPY)
    elsewhere = sources.parent / "elsewhere"
    monkeypatch.setattr(cuda, "CSRC", shutil.copytree(sources, elsewhere / "csrc"))
    run = tools.run
    monkeypatch.setattr(tools, "run", None)
    assert compile_toy(COPY) == first
    monkeypatch.setattr(tools, "run", run)
    (elsewhere / "csrc/toy.cuh").write_text("constexpr int VALUES = 32;\n")
    assert str(elsewhere) in compile_toy(COPY).ptx


@needs_nvcc
def test_kernels_that_are_compiled_together(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = compile_toy(COPY)
    of_double = {"_Z4copyIdEvPT_PKS0_": "void copy<double>(double*, double const*)"}
    builds = cuda.compile_kernels("toy", CROWDED | COPY | of_double, HOPPER)
    assert list(builds) == [*CROWDED, *COPY, *of_double]
    crowded, copy, double = builds.values()
    assert copy == alone  # which was known
    assert double.cubin == crowded.cubin
    for symbol, build in builds.items():
        assert re.findall(r"\.entry (\w+)", build.ptx) == [symbol]
    stored = [report_of(each).spill_store_bytes for each in (double, crowded)]
    assert stored[0] == 0 < stored[1]
    for symbol, build in builds.items():
        text = tools.disassemble(build.cubin, symbol)
        assert text.startswith(f".text.{symbol}:")
        assert text.count(".text.") == 1
    with pytest.raises(CompilationFailed, match="no code of _Z4last"):
        tools.disassemble(copy.cubin, "_Z4last")
    monkeypatch.setattr(tools, "run", None)
    for each in (COPY, of_double, CROWDED):  # each is known by itself
        (symbol,) = each
        assert compile_toy(each) == builds[symbol]


@needs_nvcc
def test_resources_of_a_function_that_is_no_template(sources: Path) -> None:
    for architecture in (ARCHITECTURES[80], HOPPER):
        (symbol,) = PLAIN
        build = compile_toy(PLAIN, architecture)
        resources = tools.resources_of(build.cubin, symbol, architecture)
        # Without the shared memory that the driver reserves.
        assert resources.static_shared_bytes == 64 * 4
        assert 0 < resources.registers < 32
        assert "BAR.SYNC" in tools.disassemble(build.cubin, symbol)


N_TARGETS = 8  # of fewer the assembler makes branches
CASES = "".join(f"case_{n}: st.global.u32 [%rd1 + {n}], %r1;" for n in range(N_TARGETS))
JUMP = f"""
.version 8.0
.target sm_90a
.address_size 64
.visible .entry jump(.param .u64 out, .param .u32 which) {{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [which];
targets: .branchtargets {", ".join(f"case_{n}" for n in range(N_TARGETS))};
    brx.idx %r1, targets;
    {CASES}
    ret;
}}
"""


def test_where_jumps_to_an_address_in_a_register_lead(tmp_path: Path) -> None:
    source, target = tmp_path / "jump.ptx", tmp_path / "jump.cubin"
    source.write_text(JUMP)
    ptxas = tools.triton_tool("ptxas").path
    tools.run([ptxas, f"-arch={HOPPER.target}", str(source), "-o", str(target)], "")
    (jump,) = [
        line
        for line in tools.disassemble(target.read_bytes(), "jump").splitlines()
        if "BRXU" in line
    ]
    assert len(re.findall(r"\.L_x_\d+", jump)) == N_TARGETS


@needs_nvcc
def test_spills_are_told_in_bytes(sources: Path) -> None:
    (symbol,) = CROWDED
    build = compile_toy(CROWDED)
    resources = tools.resources_of(build.cubin, symbol, HOPPER)
    assert resources.registers == 32
    assert resources.stack_bytes > 0
    report = report_of(build)
    assert report.spill_store_bytes > 0
    assert report.spill_load_bytes > 0


@needs_nvcc
def test_a_kernel_that_does_not_compile(sources: Path) -> None:
    with pytest.raises(
        CompilationFailed, match=r"cannot compile .*int.* sm_90a"
    ) as info:
        compile_toy({"_Z4copyIiEvPi": "void copy<int>(int*)"})
    assert "error" in info.value.log


def test_without_nvcc_the_message_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda, "find_cuda_home", lambda: None)
    with pytest.raises(
        CodegenUnavailable, match=r"no nvcc.*pip install -e '\.\[nvcc\]'"
    ):
        compile_toy(COPY)


def test_an_nvcc_that_is_too_old(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    nvcc = tmp_path / "bin/nvcc"
    nvcc.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "release 11.0, V11.0.1"; exit 0; fi\n'
        "echo \"nvcc fatal: Value 'sm_90a' is not defined for option"
        " 'gpu-architecture'\" >&2\n"
        "exit 1\n"
    )
    nvcc.chmod(0o755)
    monkeypatch.setattr(cuda, "find_cuda_home", lambda: tmp_path)
    with pytest.raises(CodegenUnavailable, match=r"does not know sm_90a.*CUDA 13"):
        compile_toy(COPY)


def test_a_disassembler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        @property
        def nvdisasm(self) -> None:
            raise RuntimeError("Cannot find nvdisasm")

    monkeypatch.setattr(tools, "knobs", SimpleNamespace(nvidia=Missing()))
    with pytest.raises(CodegenUnavailable, match="set TRITON_NVDISASM_PATH"):
        tools.disassemble(b"", "k")


def test_titles() -> None:
    assert cuda.title_of(next(iter(COPY.values()))) == "copy<float>"
    assert cuda.title_of("plain(float*)") == "plain"
    title = "product<float, (Activation)0, std::pair<int, int> >"
    assert cuda.title_of(f"void {title}(float*, void (*)(int))") == title


def test_the_cache_is_private_and_holds_whole_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    key = cache.key_of("a", b"b")
    assert cache.read(key, ("ptx",)) is None
    cache.write(key, {"ptx": b"text"})
    assert cache.read(key, ("ptx",)) == {"ptx": b"text"}
    assert cache.read(key, ("ptx", "cubin")) is None
    (folder,) = {path.parent for path in tmp_path.rglob("*.ptx")}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_keys_keep_parts_apart() -> None:
    assert cache.key_of("ab", "c") != cache.key_of("a", "bc")


def test_a_cache_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    cache.write("key", {"ptx": b"1"})
    assert cache.read("key", ("ptx",)) is None


def test_a_cache_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_bytes(path: Path, data: bytes) -> NoReturn:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    cache.write("key", {"ptx": b"1"})
    assert list(folder_of("codegen").iterdir()) == []
    assert cache.read("key", ("ptx",)) is None


@needs_nvcc
@pytest.mark.parametrize("number", ARCHITECTURES)
def test_the_assembler_is_of_nvccs_release(number: int) -> None:
    ptxas = cuda.find_ptxas(ARCHITECTURES[number])
    assert tools.version_of(ptxas) == tools.version_of(ptxas.with_name("nvcc"))


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        (None, r"there is no .*/ptxas; mend it"),
        ("exit 1", r"ptxas cannot be run .*; mend it"),
        ("echo nothing", r"ptxas --version names no version; mend it"),
        (
            '[ "$1" = --version ] && echo release 11.0, V11.0.1',
            r"does not know sm_90a .*/ptxas\); install CUDA 13",
        ),
    ],
)
def test_an_assembler_that_is_of_no_use(
    program: str | None,
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "bin").mkdir()
    if program:
        (tmp_path / "bin/ptxas").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "bin/ptxas").chmod(0o755)
    monkeypatch.setattr(cuda, "find_cuda_home", lambda: tmp_path)
    with pytest.raises(CodegenUnavailable, match=complaint):
        cuda.find_ptxas(HOPPER)


@pytest.mark.parametrize("says", ["", "release 13.0, V13.0.48"])
def test_an_nvcc_that_does_nothing(
    says: str, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    nvcc = tmp_path / "bin/nvcc"
    nvcc.write_text(f"#!/bin/sh\necho {says!r}\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cuda, "find_cuda_home", lambda: tmp_path)
    with pytest.raises(CodegenUnavailable, match=r"nvcc .*another CUDA toolkit"):
        compile_toy(COPY)

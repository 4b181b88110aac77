"""The routes from a .cu to a launcher: machine code, NVRTC, the command, the report."""

from __future__ import annotations

import ctypes
import io
import json
import math
import re
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from common import needs_gpu_to_itself
from rich.console import Console
from torch.cuda import _utils

from bindings import toolchain
from bindings.backends import cuda_inline, native, prebuilt
from bindings.errors import BuildError, UnsupportedError
from bindings.op import Op, as_tuple
from bindings.sources import CSRC, EMULATOR
from bindings.trials import TRIALS
from compare.assembly.listing import Listing, parse_sass
from compare.cli import main
from compare.code import binary, tools
from compare.code.cuda import title_of
from compare.errors import (
    BuildFailedError,
    CodegenUnavailable,
    CompilationFailed,
    UnavailableError,
)
from compare.judge.cases import Case, make_arguments
from compare.judge.parity import Skipped
from compare.report import route_tables as report
from compare.timing import build_routes, nvrtc, start, times
from compare.timing.build_routes import DeviceCode, Route, RoutesReport

CUDA_HOME = toolchain.find_cuda_home()
needs_nvcc = pytest.mark.skipif(CUDA_HOME is None, reason="needs nvcc")

HOSTILE = "[bold]x[/]\x1b[31m"

KERNEL = """\
//--------------------- .text._Z4loopPf --------------------------
\t.section\t.text._Z4loopPf,"ax",@progbits
.text._Z4loopPf:
.L_x_4:
        /*0000*/                   LDG.E R2, [R4.64] ;
        /*0010*/              @!P0 BRA `(.L_x_4) ;
        /*0020*/                   FADD R2, R2, R7 ;
        /*0030*/                   EXIT ;
.L_x_5:
        /*0040*/                   BRA `(.L_x_5);
        /*0050*/                   NOP;
"""
OTHER_KERNEL = KERNEL.replace("loop", "last")


# ---- Machine code --------------------------------------------------------------------


def test_one_kernel_is_cut_out_of_many() -> None:
    text = f"\t.target\tsm_90a\n\n{KERNEL}\n\n{OTHER_KERNEL}"
    section = tools.section_of(text, "_Z4loopPf")
    assert section.startswith(".text._Z4loopPf:\n")
    assert "last" not in section
    listing = parse_sass(section)
    assert listing.kernel == "_Z4loopPf"
    assert [each.opcode for each in listing.instructions] == [
        "LDG.E",
        "BRA",
        "FADD",
        "EXIT",
    ]
    assert tools.section_of(text, "_Z4lastPf") in OTHER_KERNEL
    assert tools.section_of(text, "_Z4loop") == ""
    assert tools.section_of(text, "_Z4l..pPf") == ""


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        (("_Z4loopPf", "_Z4otherPf"), 0),  # its name
        (("R2", "R9"), 0),  # a register
        ((".L_x_4", ".L_x_77"), 0),  # a label
        (("FADD", "FMUL"), 1),
        (("        /*0030*/                   EXIT ;\n", ""), 1),
        (("R2, R2, R7", "R2, R7, R7"), 1),
        (("EXIT ;", "EXIT ;\n        /*0034*/                   MEMBAR ;"), 1),
        (("@!P0 ", "     "), 1),
    ],
)
def test_codes_are_compared_but_for_names(
    change: tuple[str, str], differing: int
) -> None:
    first, second = parse_sass(KERNEL), parse_sass(KERNEL.replace(*change))
    assert binary.count_differing(first, first) == 0
    assert binary.count_differing(first, second) == differing
    assert binary.count_differing(second, first) == differing


@needs_nvcc
def test_machine_code_of_a_library_and_of_a_cubin(tmp_path: Path) -> None:
    (tmp_path / "toy.cu").write_text(
        "__global__ void first(float* x) { x[threadIdx.x] = 2.0f; }\n"
        "__global__ void second(float* x) { x[threadIdx.x] = sqrtf(x[0]); }\n"
    )
    nvcc = [f"{CUDA_HOME}/bin/nvcc", "toy.cu"]
    architectures = ["-gencode=arch=compute_80,code=sm_80"]
    architectures += ["-gencode=arch=compute_90a,code=sm_90a"]
    for command in (
        [*nvcc, *architectures, "-c", "-o", "toy.o"],
        [*nvcc, "-arch=sm_90a", "-cubin", "-o", "toy.cubin"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True)
    library, symbol = tmp_path / "toy.o", "_Z6secondPf"
    code = binary.read_kernel(library, symbol, "sm_90a")
    assert len(code.instructions) > 10
    alone = binary.read_kernel(tmp_path / "toy.cubin", symbol, "sm_90a")
    assert binary.count_differing(code, alone) == 0
    assert (
        binary.count_differing(code, binary.read_kernel(library, symbol, "sm_80")) > 0
    )
    for name, target in (("_Z5thirdPf", "sm_90a"), (symbol, "sm_100a")):
        with pytest.raises(CodegenUnavailable) as missing:
            binary.read_kernel(library, name, target)
        assert (
            missing.value.reason == f"toy.o has no machine code of {name} for {target}"
        )


def test_code_that_cannot_be_read_has_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_kernel(path: Path, kernel: str, target: str) -> Listing:
        if path.name == "_cuda.so":
            raise CodegenUnavailable("there is no cuobjdump", "reinstall triton")
        if path.name == "bad.so":
            raise CompilationFailed("cuobjdump cannot read bad.so", "no library")
        if path.name == "shorter.so":
            return parse_sass(KERNEL.replace("EXIT ;", ""))
        return parse_sass(KERNEL if path.name == "good.so" else OTHER_KERNEL)

    monkeypatch.setattr(binary, "read_kernel", read_kernel)
    lab = _lab(tmp_path)
    for name, code in (
        ("_cuda.so", Skipped("there is no cuobjdump; reinstall triton")),
        ("bad.so", Skipped("cuobjdump cannot read bad.so: no library")),
        ("good.so", DeviceCode(4, 0)),
        ("other.so", DeviceCode(4, 0)),
        ("shorter.so", DeviceCode(3, 1)),  # beside the first that could be read
    ):
        assert lab.code(Path(name), "k") == code


# ---- NVRTC ---------------------------------------------------------------------------


def _passed_on(values: list[Any]) -> list[int]:
    """The 64 bits in which torch passes numbers that are not pointers."""
    return [
        int.from_bytes(bytes(ctypes.c_double(value)), "little", signed=True)
        for value in values
        if isinstance(value, float)
    ]


def test_arguments_reach_a_kernel_as_64_bits() -> None:
    addresses = [torch.empty(3).data_ptr(), 2**63 - 16]
    # The bits of a signalling NaN, and of other doubles of every kind.
    numbers = [0, 1, -1, 2**31, 2**40 + 1, -(2**62), 2**63 - 1, 0x7FF0000000000001]
    signature = f"void f<float, 4>(float*, float const*{', long' * len(numbers)})"
    values = nvrtc.kernel_arguments(signature, [*addresses, *numbers])
    assert _passed_on(values) == [*addresses, *numbers]


def test_floats_and_null_pointers_are_passed_on() -> None:
    # The plan has the bits of a float, like the int that torch passes for it.
    (bits,) = struct.unpack("I", struct.pack("f", -0.1))
    values = nvrtc.kernel_arguments("f(float*, float)", [0, bits])
    null, number = values
    assert struct.pack("d", null) == bytes(8)
    assert isinstance(number, int)
    assert struct.unpack("f", struct.pack("i", number))[0] == torch.tensor(-0.1).item()


@pytest.mark.parametrize(
    "signature",
    [
        "f(float*, double)",
        "f(float*, int)",
        "f(Vec<float, 4>, long)",
    ],
)
def test_what_torch_cannot_pass_is_refused(signature: str) -> None:
    with pytest.raises(UnsupportedError, match="torch cannot pass"):
        nvrtc.kernel_arguments(signature, [1024, 7])


def test_a_kernel_is_launched_as_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Kernel:
        def set_shared_memory_config(self, n_bytes: int) -> None:
            calls.append(n_bytes)

        def __call__(self, *arguments: Any) -> None:
            calls.append(arguments)

    def load(ptx: bytes) -> Any:
        assert ptx == b"cubin"
        return SimpleNamespace(_Z1fPfx=Kernel())

    monkeypatch.setattr(_utils, "_cuda_load_module", load)
    plan = {"signature": "f(float*, long)", "shared_bytes": 65536}
    address = torch.empty(3).data_ptr()
    plan |= {"grid": (3, 1, 1), "block": (128, 1, 1), "arguments": [address, 7]}
    launch = nvrtc.bind(nvrtc.load(nvrtc.Compiled("_Z1fPfx", b"cubin")), plan)
    assert calls == [65536]
    launch()
    grid, block, values, shared_bytes = calls[1]
    assert (grid, block, shared_bytes) == ((3, 1, 1), (128, 1, 1), 65536)
    assert _passed_on(values) == [address, 7]


def test_torch_has_what_the_route_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(toolchain, "find_cuda_home", lambda: Path("/toolkit"))
    assert nvrtc.obstacle() is None


def test_another_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(toolchain, "find_cuda_home", lambda: Path("/toolkit"))
    with monkeypatch.context() as patch:
        patch.setattr(_utils, "_nvrtc_compile", lambda kernel_source, kernel_name: b"")
        assert "has no torch.cuda._utils._nvrtc_compile as" in str(nvrtc.obstacle())
    monkeypatch.delattr(_utils, "_cuda_load_module")
    assert "has no torch.cuda._utils._cuda_load_module as" in str(nvrtc.obstacle())
    with pytest.raises(UnsupportedError, match="_cuda_load_module"):
        nvrtc.compile_kernel("add", "add_kernel<float, 4, false>", "sm_90a")


def test_nvrtc_without_cuda_or_a_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "is a CPU build" in str(nvrtc.obstacle())
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(toolchain, "find_cuda_home", lambda: None)
    assert "pip install -e '.[nvcc]'" in str(nvrtc.obstacle())


def test_nvrtc_errors_are_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(toolchain, "find_cuda_home", lambda: Path("/toolkit"))

    def fail(
        kernel_source: str,
        kernel_name: str,
        compute_capability: str,
        cuda_include_dirs: list[str],
        nvcc_options: list[str],
    ) -> None:
        assert kernel_source.endswith('#include "add/add.cu"\n')
        assert "#undef __CUDA_NO_HALF_OPERATORS__" in kernel_source
        assert (kernel_name, compute_capability) == ("k<1>", "90a")
        headers = next(
            path for path in cuda_include_dirs if Path(path, "vector").is_file()
        )
        assert Path(headers, "type_traits").read_text().startswith("#pragma once\n")
        raise error

    monkeypatch.setattr(_utils, "_nvrtc_compile", fail)
    error: Exception = RuntimeError(
        "Kernel compilation failed:\nadd.cu(1): error: no\n"
    )
    with pytest.raises(BuildError) as refused:
        nvrtc.compile_kernel("add", "k<1>", "sm_90a")
    assert str(refused.value) == (
        "NVRTC cannot compile csrc/add/add.cu:\nadd.cu(1): error: no"
    )
    error = OSError("Could not find any NVRTC library")
    with pytest.raises(UnsupportedError, match="NVRTC: Could not find any NVRTC"):
        nvrtc.compile_kernel("add", "k<1>", "sm_90a")


@needs_nvcc
def test_there_is_a_stand_in_for_every_header_of_the_host() -> None:
    files = [path for path in CSRC.rglob("*.cu*") if not path.is_relative_to(EMULATOR)]

    def included_by(paths: Iterable[Path]) -> set[str]:
        texts = (path.read_text(errors="replace") for path in paths)
        return {name for e in texts for name in re.findall(r"#include <([^>]+)>", e)}

    of_cuda = {
        path
        for name in included_by(files)
        if (path := Path(f"{CUDA_HOME}/include", name)).is_file()
    }
    needed = included_by(files) - {path.name for path in of_cuda}
    # Those of CUDA need more, of the C library.
    assert needed <= nvrtc._HEADERS.keys() <= needed | included_by(of_cuda)


@pytest.mark.skipif(nvrtc.obstacle() is not None, reason=nvrtc.obstacle() or "")
def test_nvrtc_compiles_every_op(op: Op) -> None:
    case = Case(TRIALS[op.name].small_shape)
    arguments = make_arguments(op, case)
    outputs = as_tuple(op.allocate(*arguments))
    module = prebuilt.load("_cpu")
    for plan in native.plan(module, op, op.arguments(*outputs, *arguments), 90):
        compiled = nvrtc.compile_kernel(
            op.source, title_of(plan["signature"]), "sm_90a"
        )
        assert compiled.cubin.startswith(b"\x7fELF")
        assert compiled.symbol.encode() in compiled.cubin


# ---- The command ---------------------------------------------------------------------


def test_without_nvcc_it_says_what_mends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(toolchain, "find_cuda_home", lambda: None)
    assert main(["routes", "add"]) == 3
    assert re.search(
        r"csrc/add/add.cu .* no nvcc .*'\.\[nvcc\]'", capsys.readouterr().err
    )


def test_a_toolkit_that_will_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "find_cuda_home", lambda: tmp_path)
    with pytest.raises(UnavailableError, match=r"has no libcudart_static\.a"):
        build_routes._find_toolkit("add")
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64/libcudart_static.a").touch()
    with pytest.raises(UnavailableError, match=r"bin/nvcc cannot be run"):
        build_routes._find_toolkit("add")
    monkeypatch.setattr(toolchain, "nvcc_version", lambda home: (13, 0))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "Hopper")
    with pytest.raises(UnavailableError, match="'Hopper' is not an architecture"):
        build_routes._find_toolkit("add")


@pytest.mark.parametrize(
    ("available", "capability", "expected"),
    [
        (False, None, (90, "sm_90a")),
        (True, (8, 6), (86, "sm_86")),
        (True, (9, 0), (90, "sm_90a")),
        (True, (10, 0), (100, "sm_100a")),
    ],
)
def test_the_architecture_is_that_of_the_gpu(
    available: bool,
    capability: tuple[int, int] | None,
    expected: tuple[int, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert build_routes._architecture() == expected


def test_what_a_compiler_says_is_shown(tmp_path: Path) -> None:
    commands = [["true"], ["sh", "-c", "echo x.cu: error: no; exit 1"]]
    with pytest.raises(BuildFailedError, match=r"x\.cu: error: no"):
        start.run_at_once(commands, tmp_path)


def test_what_a_process_says_when_it_crashes_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*arguments: Any, **options: Any) -> Any:
        assert json.loads(options["input"])["route"] == "nvrtc"
        return SimpleNamespace(returncode=-11, stdout="Segmentation fault")

    monkeypatch.setattr(subprocess, "run", crash)
    with pytest.raises(UnavailableError, match="nvrtc ended with -11:\nSegmentation"):
        _lab(tmp_path).load_in_a_process("nvrtc")


def _lab(folder: Path, no_calls: str | None = None) -> build_routes._Lab:
    toolkit = build_routes._Toolkit(Path("/toolkit"), "13.0", Path("/toolkit/lib"), ())
    op: Any = SimpleNamespace(name="add")
    request = {"arch": "sm_90a", "folder": str(folder)}
    return build_routes._Lab(op, request, toolkit, folder, no_calls, print)


@pytest.mark.parametrize(
    ("no_calls", "answer", "call_us"),
    [
        (None, {"call_us": 3.5}, 3.5),
        (None, {"not_called": "it is wrong"}, Skipped("it is wrong")),
        ("times need a GPU", {}, Skipped("times need a GPU")),
    ],
)
def test_a_call_has_a_time_or_a_reason(
    no_calls: str | None,
    answer: dict[str, Any],
    call_us: float | Skipped,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = tmp_path / "_cuda.so"
    library.write_bytes(bytes(7))
    symbols: list[str] = []
    monkeypatch.setattr(
        build_routes._Lab, "code", lambda self, path, symbol: symbols.append(symbol)
    )
    common = {"load_s": 0.5, "binary": str(library), "symbol": "k"}
    route = _lab(tmp_path, no_calls).route("by hand", 9.0, common | answer)
    assert route.call_us == call_us
    assert (route.cold_s, route.warm_s, route.binary_bytes) == (9.0, 0.5, 7)
    assert symbols == ["k"]


def test_a_source_that_load_inline_cannot_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "cuda_obstacle", lambda *versions: None)
    monkeypatch.setattr(nvrtc, "obstacle", lambda: None)

    def refuse(*arguments: Any, **options: Any) -> Any:
        answer = Path(json.loads(options["input"])["folder"], "answer.json")
        answer.write_text('{"problem": "add.cu: error: no"}')
        return SimpleNamespace(returncode=0, stdout="")

    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr(cuda_inline, "gencode_flags", tuple)
    with pytest.raises(BuildFailedError, match=r"add\.cu: error: no"):
        build_routes._try_load_inline(_lab(tmp_path))
    # NVRTC supports less than nvcc, so its refusal is no fault of the source.
    assert build_routes._try_nvrtc(_lab(tmp_path)) == Skipped("add.cu: error: no")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds for one architecture alone, the default of the comparison."""
    if not torch.cuda.is_available():
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")


@needs_nvcc
@pytest.mark.usefixtures("small")
def test_all_routes_that_there_are(tmp_path: Path) -> None:
    steps: list[str] = []
    made = build_routes.compare_routes("add", steps.append)
    assert steps[0] == "building csrc/add/add.cu as setup.py does"
    assert made.kernel == "add_kernel<float, 4, false>"
    no_gpu_code = toolchain.cuda_obstacle(torch.__version__, torch.version.cuda)
    expected = {"prebuilt"}
    expected |= set() if no_gpu_code else {"load_inline"}
    expected |= set() if nvrtc.obstacle() else {"nvrtc"}
    taken = {
        name: each for name, each in made.routes.items() if isinstance(each, Route)
    }
    assert taken.keys() == expected
    assert list(made.routes) == ["prebuilt", "load_inline", "nvrtc"]
    for name, route in taken.items():
        assert 0 < route.warm_s < 60
        assert isinstance(route.code, DeviceCode), route.code
        assert route.code.instructions > 50
        assert route.binary_bytes > 10_000
        if name != "nvrtc":  # the same compiler and the same flags
            assert route.code.differing == 0
            assert route.cold_s > 2 * route.warm_s
    text = json.dumps(times.to_json(made), allow_nan=False)
    document = json.loads(text)
    assert document["case"]["shape"] == list(made.case.shape)
    assert document["routes"]["prebuilt"]["code"]["differing"] == 0
    report.show(made, Console(file=io.StringIO()))


@needs_gpu_to_itself
@needs_nvcc
def test_calls_are_timed_on_a_gpu() -> None:
    made = build_routes.compare_routes("softmax", lambda step: None)
    for name, route in made.routes.items():
        assert isinstance(route, Route), (name, route)
        assert isinstance(route.call_us, float), route.call_us
        assert 0.5 < route.call_us < 500


def _report() -> RoutesReport:
    route = Route(
        how=f"nvcc 13.0 {HOSTILE}",
        cold_s=12.345,
        warm_s=0.000567,
        call_us=3.456,
        binary_bytes=1_424_000,
        code=DeviceCode(550, 0),
    )
    versions = ("python", "torch", "triton", "nvcc", "driver")
    return RoutesReport(
        op="softmax",
        case=Case((16384, 4096)),
        kernel="softmax_kernel<float, 4, 8, 128>",
        arch="sm_90a",
        environment={**dict.fromkeys(versions, HOSTILE), "gpus": ["NVIDIA H200"]},
        routes={
            "prebuilt": route,
            "load_inline": replace(route, call_us=Skipped("no GPU")),
            "nvrtc": replace(route, code=DeviceCode(551, 7), call_us=math.pi),
        },
    )


def _shown(made: RoutesReport) -> str:
    output = io.StringIO()
    report.show(made, Console(file=output, width=100, highlight=False))
    return "\n".join(" ".join(line.split()) for line in output.getvalue().splitlines())


def test_report_shows_the_routes_side_by_side() -> None:
    text = _shown(_report())
    assert "softmax_kernel<float, 4, 8, 128> for sm_90a" in text
    assert "prebuilt load_inline NVRTC" in text
    assert "nothing built before 12.3 12.3 12.3" in text
    assert "in a second process 0.000567 0.000567 0.000567" in text
    assert "call on the host, us 3.46 - 3.14" in text
    assert "binary, kB 1,424 1,424 1,424" in text
    assert "machine code 550 instructions the same differs in 7 of 551" in text
    assert "load_inline: no call: no GPU" in text
    assert "\x1b" not in text


def test_report_says_what_is_missing_once() -> None:
    made = _report()
    prebuilt = made.routes["prebuilt"]
    assert isinstance(prebuilt, Route)
    unread = replace(prebuilt, code=Skipped("no cuobjdump"), call_us=Skipped("no GPU"))
    skipped = Skipped(f"a CPU build {HOSTILE}")
    made = replace(
        made, routes={"prebuilt": unread, "load_inline": unread, "nvrtc": skipped}
    )
    text = _shown(made)
    assert "machine code - -" in text
    assert "prebuilt, load_inline: no machine code: no cuobjdump" in text
    assert "prebuilt, load_inline: no call: no GPU" in text
    assert "NVRTC: skipped: a CPU build [bold]x[/]" in text
    document = times.to_json(made)
    assert document["routes"]["nvrtc"] == {"skipped": skipped.reason}
    assert document["routes"]["prebuilt"]["code"] == {"skipped": "no cuobjdump"}
    assert document["routes"]["prebuilt"]["warm_s"] == unread.warm_s

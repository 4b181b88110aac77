"""A user's .cu: its tokens, its functions, and what becomes of it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from together import in_one_test
from torch.utils import cpp_extension

from bindings.sources import EMULATOR
from bindings.toolchain import find_cuda_home
from compare.pairs import cuda_rewriting
from compare.pairs.cpp_tokens import Token, code_of, read_tokens
from compare.pairs.cuda_bindings import python_value
from compare.pairs.cuda_source import CudaSource, CudaSourceError, read, read_text

EXTENSION = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <vector>
using namespace torch;
#define CHECK(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
constexpr int kThreads = 128;
struct Options { torch::Tensor x; };

namespace {
template <typename scalar_t>
static __global__ void scale_kernel(const scalar_t* __restrict__ x,
                                    scalar_t* y, const at::acc_type<scalar_t, true> a,
                                    int n) {
  extern __shared__ __align__(16) unsigned char memory[];
  scalar_t* shared = reinterpret_cast<scalar_t*>(memory);
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) y[i] = shared[0] = x[i] * scalar_t(a);
}
}  // namespace

void check(const torch::Tensor& x) { CHECK(x); }

torch::Tensor scale(torch::Tensor x, double a) {
  check(x);
  auto y = torch::empty_like(x, x.options().device(torch::kCUDA));
  auto z = y.to(torch::Device("cuda:0")).cuda();
  const int n = x.numel();
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "scale", ([&] {
    scale_kernel<scalar_t><<<(n + kThreads - 1) / kThreads, kThreads, sizeof(scalar_t),
                             at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), a, n);
  }));
  return y;
}

#ifdef TORCH_EXTENSION_NAME
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &scale, "scales { by a number");
}
#endif
TORCH_LIBRARY_IMPL(mine, CUDA, m) { m.impl("mine::scale", TORCH_FN(scale)); }
"""

PLAIN = r"""
#include <cuda_runtime.h>
#include <array>
#include <vector>
/* k<<<1, 2>>>(x); __global__ void commented() { */
const char* text = "k<<<1, 2>>>(x); } __global__";
const char* raw = R"x(unbalanced { ( k<<<1>>>( )" )x";
constexpr unsigned long long operator""_kib(unsigned long long n) { return n * 1'024; }
#if 0
don't read this: k<<<1, 2>>>(
#endif
#define BLOCK 256
#define COPY(T, n, ...) \
  copy<T><<<(n) / BLOCK, BLOCK>>>( \
      __VA_ARGS__)
#define KERNEL __global__ void

extern __shared__ float everywhere[];
__constant__ static float table[4];
dim3 usual(16, 16);
float (*pointer)(float) = nullptr;

namespace a::b {
template <typename T, int N = 4, typename U = T>
__global__ void __launch_bounds__(BLOCK, 2)
copy(T* __restrict__ out,  // with a comment
     const U* x, int n) {
  extern __shared__ float tile[][32];
  __shared__ alignas(16) float fixed[8];
  if constexpr (N > 2) fixed[0] = everywhere[0] + table[1];
  out[n] = x[n] + tile[0][1] + fixed[0];
}
}  // namespace a::b
using a::b::copy;

__global__ void over(float* out, int n) { out[n] = 1; }
__global__ void over(double* value, float n) { *value = n; }
template <typename F>
__global__ void apply(F f, float* p, float (*g)(float), int b[3]) { p[0] = f(p[0]); }
struct Twice { __host__ __device__ float operator()(float x) const { return 2 * x; } };
__device__ __noinline__ float helper(float x) { return x; }
KERNEL by_macro(float* p) { *p = helper(*p); }
extern "C" {
__global__ inline void plain(float* p) { *p = 1; }
}
#ifdef WIDE
__global__ void branch(float4* p) {
#else
__global__ void branch(float* p) {
#endif
  *p = {};
}
template <int B, typename T>
__global__ void partly(T* p) { p[0] = B; }
template __global__ void partly<3, float>(float*);

template <typename K, typename... Args>
static void launch_any(K kernel, int n, Args... args) {
  kernel<<<n, BLOCK>>>(args...);
}

void run(float* out, const float* x, int n, cudaStream_t stream) {
  std::vector<std::array<std::array<int, 2>, 2>> closes_two;
  copy<<<dim3((n + 1) / 2), BLOCK, 8_kib, stream>>>(out, x, n);
  copy<float><<<1, std::vector<std::vector<std::vector<int>>>(1).size()>>>(out, x, n);
  a::b::copy<float, 8>
      <<<n,
         BLOCK>>>
      (out, x, n);
  COPY(float, n, out, x, n);
  over<<<1, 1>>>(out, n);
  apply<<<1, 1>>>(Twice{}, out, nullptr, nullptr);
  ::plain<<<1, (n > 3 ? 2 : 1)>>>(out);
  partly<7><<<1, 1>>>(out);
  auto kernel = &copy<float, 2>;
  kernel<<<1, 2>>>(out, x, n);
  (n ? plain : by_macro)<<<1, 2>>>(out);
  launch_any(by_macro, n, out);
  cudaLaunchConfig_t config{};
  cudaLaunchKernelEx(&config, plain, out);
}

int main(int argc, char** argv) {
  run(nullptr, nullptr, argc, nullptr);
}
"""

# Stands for csrc/emulator/own/launch.h, of which only the types matter here.
OWN = """
#include <cuda_runtime.h>
namespace own {
struct Launch {
  Launch(dim3, dim3, unsigned long = 0, cudaStream_t = nullptr) {}
  template <class... P, class... A> void run(void (*k)(P...), const char*, A&&... a) {
    if (false) k(static_cast<A&&>(a)...);
  }
  template <class D, class... A> void run_deduced(D pick, const char* n, A&&... a) {
    run(pick(a...), n, a...);
  }
};
template <class T> struct DynamicShared { operator T*() const; };
template <class... P, class... A>
int launch_kernel_ex(const cudaLaunchConfig_t*, void (*)(P...), A&&...);
}
"""


@pytest.fixture
def plain(tmp_path: Path) -> CudaSource:
    return _source(PLAIN, tmp_path)


@pytest.fixture
def extension(tmp_path: Path) -> CudaSource:
    return _source(EXTENSION, tmp_path)


def _source(text: str, folder: Path) -> CudaSource:
    (folder / "mine.cu").write_text(text, "utf-8")
    return read(folder / "mine.cu")


def _tokens(text: str) -> list[Token]:
    return read_tokens(text, Path("mine.cu"))


def _emulated(text: str) -> str:
    """The text for the emulator, without the line that names the file."""
    source = read_text(text, Path("mine.cu"))
    return cuda_rewriting.emulated_host(source)[source.path].partition("\n")[2]


def _lines(texts: Mapping[Path, str], source: CudaSource) -> list[str]:
    """The lines of the main file; that of number n has index n."""
    return texts[source.path].partition("#line")[2].splitlines()


# ---- Tokens --------------------------------------------------------------------------


@pytest.mark.parametrize("text", [EXTENSION, PLAIN])
def test_joined_tokens_are_the_text(text: str) -> None:
    tokens = _tokens(text)
    assert "".join(token.text for token in tokens) == text
    for token in tokens:
        assert text[token.start : token.end] == token.text
        assert token.line == 1 + text.count("\n", 0, token.start)


@pytest.mark.parametrize(
    ("text", "n_launches"),
    [
        ("k<<<1, 2>>>(x);", 1),
        ("a<b<c<int>>>(x);", 0),
        ("operator<<<int>(x); a<b<c<int>>>(y);", 0),
        ("k<<<1, a<b<c<int>>>(2)>>>(x);", 1),
        ("k<<<1, 2>>>(x); h<<<1, 2>>>(a<b<c<int>>>(y));", 2),
        ('"k<<<1, 2>>>(x)" /* k<<<1, 2>>>(x) */ // k<<<1, 2>>>(x)', 0),
    ],
)
def test_only_launches_are_launches(text: str, n_launches: int) -> None:
    kinds = [token.text for token in _tokens(text) if token.kind == "launch"]
    assert kinds == ["<<<", ">>>"] * n_launches


def test_literals_are_one_token() -> None:
    text = '0x1\'ff 1.5e-3f \'a\' \'\\\'\' u8"x" LR"("})" "a\\"b"_s 10_kib'
    assert [token.text for token in code_of(_tokens(text))] == text.split()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int x;\n/* int y;", "mine.cu:2: a comment that never ends"),
        ('int x = "y;\n', "mine.cu:1: a string that never ends"),
        ("void f() {\n  if (1) {\n}\n", "mine.cu:1: a { that never closes"),
        ("void f() {}\n}\n", "mine.cu:2: a } that nothing opens"),
        ("#if 0\n", "mine.cu:1: an #if that never ends"),
    ],
)
def test_what_does_not_end_is_named(text: str, message: str) -> None:
    with pytest.raises(CudaSourceError) as caught:
        read_text(text, Path("mine.cu"))
    assert str(caught.value) == message
    assert caught.value.exit_code == 4


# ---- What is in a file ---------------------------------------------------------------


def test_functions_of_an_extension(extension: CudaSource) -> None:
    kernel, check, scale = extension.functions
    assert (kernel.name, kernel.kind, kernel.template) == (
        "scale_kernel",
        "kernel",
        ("scalar_t",),
    )
    assert kernel.line == 11
    assert [(each.name, each.type) for each in kernel.parameters] == [
        ("x", "const scalar_t* __restrict__"),
        ("y", "scalar_t*"),
        ("a", "const at::acc_type<scalar_t, true>"),
        ("n", "int"),
    ]
    assert (scale.returns, scale.launches) == ("torch::Tensor", ("scale_kernel",))
    assert scale.calls == ("check",)
    assert (check.kind, check.launches) == ("host", ())
    assert extension.bound == {"forward": "scale", "scale": "scale"}
    assert extension.uses_torch
    assert not extension.has_main
    assert extension.refusals == ()
    assert extension.entry_points() == (scale,)


def test_functions_of_a_program(plain: CudaSource) -> None:
    kinds = {each.qualified: each.kind for each in plain.functions}
    assert kinds == {
        'operator""_kib': "host",
        "a::b::copy": "kernel",
        "over": "kernel",
        "apply": "kernel",
        "helper": "device",
        "by_macro": "kernel",
        "plain": "kernel",
        "branch": "kernel",
        "partly": "kernel",
        "launch_any": "host",
        "run": "host",
        "main": "host",
    }
    run = next(each for each in plain.functions if each.name == "run")
    launched = [
        "copy",
        "copy",
        "copy",
        "copy",
        "over",
        "apply",
        "plain",
        "partly",
        "copy",
        "",
        "plain",
    ]
    assert run.launches == tuple(launched)  # one of them by an expression
    assert plain.entry_points() == (run,)
    assert plain.has_main
    assert not plain.uses_torch
    apply = next(each for each in plain.functions if each.name == "apply")
    assert [(each.name, each.type) for each in apply.parameters] == [
        ("f", "F"),
        ("p", "float*"),
        ("g", "float (* )(float)"),
        ("b", "int [3]"),
    ]


def test_included_files_are_read(tmp_path: Path) -> None:
    header = tmp_path / "sub" / "scale.cuh"
    header.parent.mkdir()
    header.write_text('#include "../deep.cuh"\n__global__ void k(float* x) {}\n')
    (tmp_path / "deep.cuh").write_text("#pragma once\n")
    source = _source(
        '#include "sub/scale.cuh"\n#include "absent.h"\n'
        "void f(float* x) { k<<<1, 1>>>(x); }\n",
        tmp_path,
    )
    assert cuda_rewriting.file_names(source) == {
        tmp_path / "mine.cu": "0_mine.cu",
        header: "1_scale.cuh",
        tmp_path / "deep.cuh": "2_deep.cuh",
    }
    texts = cuda_rewriting.emulated_host(source)
    assert texts[header].startswith(f'#line 1 "{header}"\n#include "2_deep.cuh"\n')
    assert texts[source.path].splitlines()[1:3] == [
        '#include "1_scale.cuh"',
        '#include "absent.h"',
    ]
    assert '.run(k, "x", x)' in texts[source.path]


def test_what_a_header_declares_first_can_be_launched_at_once(tmp_path: Path) -> None:
    (tmp_path / "k.h").write_text("template <typename T> __global__ void k(T* x);\n")
    source = _source(
        '#include "k.h"\nvoid f(float* x) { k<<<1, 1>>>(x); }\n'
        "template <typename T> __global__ void k(T* x) {}\n",
        tmp_path,
    )
    texts = cuda_rewriting.emulated_host(source)
    assert "own_pick_k(T* x)" in texts[tmp_path / "k.h"]
    assert "own_pick_k(T* x)" not in texts[source.path]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('__device__ void f() { asm volatile("nop;"); }', "inline PTX (asm)"),
        ('#define NOP asm("nop;")', "inline PTX (asm)"),
        ("#include <cub/cub.cuh>", "CUB (<cub/cub.cuh>)"),
        ("#include <mma.h>", "nvcuda::wmma (<mma.h>)"),
        ("__global__ void k() { k<<<1, 1>>>(); }", "a launch from device code"),
        ("__global__ void k(cudaTextureObject_t t) {}", "a texture or surface"),
        ("void f(void** a) { cudaLaunchKernel(f, 1, 1, a); }", "a launch by an array"),
        ("__global__ void k() { cg::this_grid().sync(); }", "a cooperative launch"),
        ("#include <curand.h>", "cuRAND's host interface"),
        ("#define K(n) __global__ void n() { }", "a kernel that a macro defines (K)"),
        ("void f() { k<<<1, 1>>> ARGUMENTS; }", "a launch that a macro completes"),
    ],
)
def test_what_the_emulator_refuses(text: str, expected: str) -> None:
    (refusal,) = read_text(f"\n{text}\n", Path("mine.cu")).refusals
    assert refusal.what.startswith(expected)
    assert refusal.what.endswith("does not run in the emulator")
    assert refusal.line == 2


@pytest.mark.parametrize(
    "text",
    [
        "#include <curand_kernel.h>",
        '// asm("nop")\nconst char* s = "asm(";',
        '#if __CUDA_ARCH__ >= 800\nint a = asm("");\n#else\nint a;\n#endif',
        '#ifndef __CUDA_ARCH__\nint a;\n#else\nint a = asm("");\n#endif',
    ],
)
def test_what_it_does_not_refuse(text: str) -> None:
    assert read_text(text, Path("mine.cu")).refusals == ()


# ---- For the emulator ----------------------------------------------------------------


def test_every_token_keeps_its_line(plain: CudaSource, extension: CudaSource) -> None:
    for source in (plain, extension):
        for rewrite in (
            cuda_rewriting.emulated_host,
            cuda_rewriting.emulated_kernels,
            cuda_rewriting.device,
        ):
            new = _lines(rewrite(source), source)
            old = ["", *source.files[source.path].splitlines()]
            assert len(new) == len(old)
            same = [a.strip() == b.strip() for a, b in zip(old, new, strict=True) if b]
            assert sum(same) > len(same) / 2


def test_launches_are_rewritten(plain: CudaSource) -> None:
    text = cuda_rewriting.emulated_host(plain)[plain.path]
    for expected in (
        '::own::Launch((n) / BLOCK, BLOCK).run(copy<T>, "out,x,n",  \\\n',
        'own_pick_copy(own_arguments...); }, "out,x,n", out, x, n);',
        '(1).size()).run(copy<float>, "out,x,n", out, x, n);',
        '  ::own::Launch(\nn,\n         BLOCK).run(a::b::copy<float, 8>, "out,x,n", \n',
        'return own_pick_over(own_arguments...); }, "", out, n);',
        '::own::Launch(1, (n > 3 ? 2 : 1)).run(::plain, "p", out);',
        "return own_pick_partly<7>(own_arguments...); }",
        '::own::Launch(1, 2).run(kernel, "out,x,n", out, x, n);',
        '::own::Launch(1, 2).run(n ? plain : by_macro, "", out);',
        '::own::Launch(n, BLOCK).run(kernel, "", args...);',
        "::own::launch_kernel_ex(&config, plain, out);",
        "using a::b::copy; using a::b::own_pick_copy;",
        "template <typename T, int N = 4, typename U = T> auto own_pick_copy("
        "T* __restrict__ out, const U* x, int n) -> "
        "void (*)(T* __restrict__, const U*, int) { return &copy<T, N, U>; }\n",
    ):
        assert expected in text


def test_memory_and_words_are_rewritten(plain: CudaSource) -> None:
    text = cuda_rewriting.emulated_kernels(plain)[plain.path]
    for expected in (
        "static const ::own::DynamicShared<float> everywhere;",
        "float (* const tile)[32] = "
        "reinterpret_cast<float (*)[32]>(::emulator::dynamic_shared());",
        "alignas(16) __shared__  float fixed[8];",
        "__device__ __attribute__((noinline)) float helper",
        "__constant__  float table[4];",
    ):
        assert expected in text


def test_main_can_be_called(plain: CudaSource) -> None:
    text = cuda_rewriting.emulated_host(plain)[plain.path]
    assert "\nint own_main(int argc, char** argv) {\n" in text
    assert text.endswith("\n return 0; }\n")


def test_an_extension_runs_on_the_cpu(extension: CudaSource) -> None:
    text = cuda_rewriting.emulated_host(extension)[extension.path]
    for expected in (
        "TORCH_CHECK(x.is_cpu(), #x",
        ".device(torch::kCPU)",
        'torch::Device("cpu")).cpu();',
        "inline namespace own_unnamed {\ntemplate <typename scalar_t>\n __global__ ",
        'at::cuda::getCurrentCUDAStream()).run(scale_kernel<scalar_t>, "x,y,a,n", \n',
        "#ifdef TORCH_EXTENSION_NAME\n\n\n\n#endif\n",
    ):
        assert expected in text
    assert "m.def" not in text
    assert "m.impl" not in text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("k<<<1, 2>>>();", '::own::Launch(1, 2).run(k, "");'),
        ("if (a < b) k<<<1, 2>>>(p);", 'if (a < b) ::own::Launch(1, 2).run(k, "", p);'),
        ("(k<T>)<<<g, b, s>>>(p);", '::own::Launch(g, b, s).run(k<T>, "", p);'),
        ("ks[i]<<<g, b>>>(p, q);", '::own::Launch(g, b).run(ks[i], "", p, q);'),
        ("return o->k<<<g, b>>>(p);", 'return ::own::Launch(g, b).run(o->k, "", p);'),
        (
            "f([&] { k<(1 > 2)><<<h<1, 2>(), 1>>>(p); }, 1);",
            'f([&] { ::own::Launch(h<1, 2>(), 1).run(k<(1 > 2)>, "", p); }, 1);',
        ),
    ],
)
def test_a_launch(line: str, expected: str) -> None:
    assert _emulated(f"void f() {{ {line} }}\n") == f"void f() {{ {expected} }}\n"


def test_a_string_in_a_python_file_keeps_its_lines() -> None:
    path = Path("mine.py").resolve()
    source = read_text("\n__global__ void k() {}\n", path, first_line=7)
    assert source.functions[0].line == 8
    (text,) = cuda_rewriting.device(source).values()
    assert text == f'#line 7 "{path}"\n\n__global__ void k() {{}}\n'


def test_host_code_and_kernels_part(plain: CudaSource, extension: CudaSource) -> None:
    host = cuda_rewriting.emulated_host(plain)[plain.path]
    assert "__global__ void over(float* out, int n) ; inline auto own_pick" in host
    assert "template __global__" not in host
    assert "void run(" in host
    kernels = cuda_rewriting.emulated_kernels(extension)[extension.path]
    assert "#include <ATen/AccumulateType.h>" in kernels
    assert "#include <c10/util/Half.h>" in kernels
    assert "y[i] = shared[0] = x[i] * scalar_t(a);" in kernels
    for absent in (
        "torch/extension.h",
        "vector<",
        "TORCH_CHECK(x.dim",
        "Options",
        "scale(",
    ):
        assert absent not in kernels


@pytest.mark.parametrize("part", ["emulated_host", "emulated_kernels"])
def test_the_emulators_part_compiles(
    part: str, plain: CudaSource, tmp_path: Path
) -> None:
    (tmp_path / "own.h").write_text(OWN)
    rewritten = tmp_path / "0_mine.cu"
    rewritten.write_text(getattr(cuda_rewriting, part)(plain)[plain.path])
    options = ["-std=c++20", "-fsyntax-only", "-w", f"-I{EMULATOR}"]
    subprocess.run(
        ["g++", *options, "-include", tmp_path / "own.h", "-x", "c++", rewritten],
        check=True,
    )


@pytest.mark.parametrize("text", [EXTENSION, PLAIN], ids=["extension", "plain"])
def test_the_part_for_nvcc_compiles(text: str, tmp_path: Path) -> None:
    home = find_cuda_home()
    if home is None:
        pytest.skip("no CUDA toolkit")
    source = _source(text, tmp_path)
    rewritten = tmp_path / "0_mine.cu"
    instance = (
        "\ntemplate __global__ void scale_kernel<c10::Half>"
        "(const c10::Half*, c10::Half*, float, int);\n"
    )
    rewritten.write_text(
        cuda_rewriting.device(source)[source.path] + instance * source.uses_torch
    )
    includes = [f"-I{folder}" for folder in cpp_extension.include_paths()]
    ptx = tmp_path / "mine.ptx"
    options = ["-std=c++20", "-w", "-ptx", *includes * source.uses_torch]
    subprocess.run([home / "bin/nvcc", *options, "-o", ptx, rewritten], check=True)
    name = "scale_kernel" if source.uses_torch else "by_macro"
    assert name in ptx.read_text()


def test_what_a_binding_says_of_arguments() -> None:
    text = """\
void f(torch::Tensor x, double eps, c10::optional<torch::Tensor> w) {}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("g", &f, "what it does", py::arg("x"), "eps"_a = 1e-5f,
        pybind11::arg("w").none(true) = py::none());
}
"""
    (function,) = read_text(text, Path("mine.cu")).functions
    assert [(each.name, each.default) for each in function.bound] == [
        ("x", ""),
        ("eps", "1e-5f"),
        ("w", "py::none()"),
    ]


@in_one_test("text", "value")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1e-5f", 1e-5), ("-1.", -1.0), (".5", 0.5), ("2f", 2.0)),
        *(("- 1", -1), ("1'000L", 1000), ("true", True), ("false", False)),
        *(("py::none()", None), ("c10::nullopt", None)),
        *(("std::vector<int64_t>{1, 2}", [1, 2]), ("{}", [])),
    ],
)
def test_defaults_that_are_literals(text: str, value: object) -> None:
    found = python_value(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["kEps", '"none"', "1 << 4", "{{1}}", "0x1f"])
def test_defaults_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no number"):
        python_value(text)

"""Faults to plant in the files here, and what has to be said of each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """One edit that makes a right file wrong.

    Attributes:
        file: The file to edit, from this folder.
        old: The text to replace; it occurs there once.
        new: What stands there instead.
        kind: "race", "out of bounds", "mask", "uninitialised", "offset", "strided",
            "specials", "large", "dtype", "stale", "nondeterministic", "deadlock",
            "unwritten", "wrong", "precision" or "input written".
        said: A regular expression that the message matches somewhere.
        line: The text of the line that the message names; empty if it names none.
        asked: What `python -m compare` is given, from this folder: files, and what
            stands behind `--set`.
    """

    file: str
    old: str
    new: str
    kind: str
    said: str
    line: str
    asked: tuple[str, ...]


# What the acceptance rule says of wrong numbers, and of memory that holds NaN.
_FAR_OFF = r"error is \S+, and \S+ would be allowed"
_IS_NAN = r"(were not|were never) written|are NaN and should not be"
_SPECIALS = r"(NaN|inf) and (should not be|are not)"
_OUTSIDE = r"out of bounds|past the end|before the start"
# A thread reads before another has written, or while it does: the order decides.
_TOO_EARLY = r"race: |uninitialised shared memory: "

PLANTED: list[Planted] = []


def _plant(
    file: str,
    kind: str,
    old: str,
    new: str,
    said: str,
    *,
    line: str = "",
    asked: str | tuple[str, ...],
) -> None:
    names = (f"descriptions/{asked}.py",) if isinstance(asked, str) else asked
    PLANTED.append(Planted(file, old, new, kind, said, line, names))


# ---- Torch extensions ---------------------------------------------------------------

_FILE = "cuda/softmax_extension.cu"
_plant(
    _FILE,
    "race",
    "  __syncthreads();  // shared is used again for the sum\n",
    "",
    r"race: .*no __syncthreads\(\) between them",
    line="if (lane == 0) shared[warp] = s;",
    asked="softmax",
)
_plant(
    _FILE,
    "out of bounds",
    "m = lane < warps ? shared[lane] : -INFINITY;",
    "m = shared[lane];",
    r"out of bounds: reads 4 bytes, .*dynamic shared memory",
    line="m = shared[lane];",
    asked="softmax",
)
_plant(
    _FILE,
    "out of bounds",
    "const size_t shared_bytes = threads / 32 * sizeof(float);",
    "const size_t shared_bytes = threads / 32;",
    r"out of bounds: writes 4 bytes, .*dynamic shared memory",
    line="if (lane == 0) shared[warp] = m;",
    asked="softmax",
)
_plant(
    _FILE,
    "large",
    "  m = shared[0];\n  __syncthreads();",
    "  m = 0.f;\n  __syncthreads();",
    rf"{_SPECIALS}|{_FAR_OFF}",
    asked="softmax",
)
_plant(
    _FILE,
    "stale",
    "  auto output = torch::empty_like(input);\n",
    "  static torch::Tensor output;\n"
    "  if (output.defined() && output.sizes() == input.sizes()) return output;\n"
    "  output = torch::empty_like(input);\n",
    rf"earlier call|{_FAR_OFF}",
    asked="softmax",
)
_plant(
    _FILE,
    "dtype",
    "return output;",
    "return output.to(torch::kFloat64);",
    r"dtype is torch\.float64, not torch\.float32",
    asked="softmax",
)
_plant(
    _FILE,
    "wrong",
    "const int threads = 128;",
    "const int threads = 40;",
    rf"wrong mask|divergent|{_OUTSIDE}|{_TOO_EARLY}|{_FAR_OFF}|deadlock",
    asked="softmax",
)

_plant(
    _FILE,
    "deadlock",
    "    if (lane == 0) shared[0] = m;\n  }\n",
    "    if (lane == 0) shared[0] = m;\n    __syncthreads();\n  }\n",
    r"divergent barrier",
    line="__syncthreads();",
    asked="softmax",
)

_FILE = "cuda/layer_norm_extension.cu"
_HALVING = """\
            buffer[tid] += buffer[tid + stride];
        }
        __syncthreads();
"""
_plant(
    _FILE,
    "race",
    _HALVING,
    _HALVING.replace("        __syncthreads();\n", ""),
    r"race: ",
    line="buffer[tid] += buffer[tid + stride];",
    asked="layer_norm",
)
_plant(
    _FILE,
    "deadlock",
    _HALVING,
    """\
            buffer[tid] += buffer[tid + stride];
            __syncthreads();
        }
""",
    r"divergent barrier|deadlock|race: ",
    asked="layer_norm",
)
_plant(
    _FILE,
    "race",
    "    __syncthreads();\n    return total;",
    "    return total;",
    r"race: ",
    line="buffer[tid] = value;",
    asked="layer_norm",
)
_plant(
    _FILE,
    "precision",
    "squares += d * d;",
    "squares = static_cast<float>(c10::Half(squares + d * d));",
    _FAR_OFF,
    asked="layer_norm",
)
_plant(
    _FILE,
    "unwritten",
    "        rstd[blockIdx.x] = scale;\n",
    "",
    rf"output 3.*{_IS_NAN}",
    asked="layer_norm",
)
_plant(
    _FILE,
    "wrong",
    "block_reduce_sum(squares, buffer) / cols;",
    "block_reduce_sum(squares, buffer) / (cols - 1);",
    _FAR_OFF,
    asked="layer_norm",
)
_plant(
    _FILE,
    "strided",
    "    x = x.contiguous();\n",
    "",
    rf"{_FAR_OFF}|{_OUTSIDE}|{_SPECIALS}",
    asked="layer_norm",
)
_plant(
    _FILE,
    "dtype",
    "auto statistics = x.options().dtype(torch::kFloat32);",
    "auto statistics = x.options().dtype(torch::kFloat64);",
    r"expected scalar type|dtype is torch\.float64",
    asked="layer_norm",
)

_FILE = "cuda/gelu_vectorized.cu"
_plant(
    _FILE,
    "offset",
    "if (is_aligned(in) && is_aligned(out)) {",
    "if (n >= 4) {",
    r"misaligned",
    line="float4 v = reinterpret_cast<const float4*>(x)[i];",
    asked="gelu",
)
_plant(
    _FILE,
    "unwritten",
    "  if (tail < n) y[tail] = gelu(x[tail]);\n",
    "",
    _IS_NAN,
    asked="gelu",
)
_plant(
    _FILE,
    "out of bounds",
    "if (tail < n) y[tail] = gelu(x[tail]);",
    "if (tail <= n) y[tail] = gelu(x[tail]);",
    r"out of bounds: reads 4 bytes",
    line="if (tail <= n) y[tail] = gelu(x[tail]);",
    asked="gelu",
)
_plant(
    _FILE,
    "large",
    "  return 0.5f * x * (1.0f + tanhf(kBeta * (x + kKappa * x * x * x)));\n",
    "  const float e = expf(2.0f * kBeta * (x + kKappa * x * x * x));\n"
    "  return 0.5f * x * (1.0f + (e - 1.0f) / (e + 1.0f));\n",
    _IS_NAN,
    asked="gelu",
)
_plant(
    _FILE,
    "stale",
    "  auto output = torch::empty_like(input);\n",
    "  static auto output = torch::empty_like(input);\n",
    rf"shape is|earlier call|{_OUTSIDE}",
    asked="gelu",
)

_FILE = "cuda/matmul_tiled.cu"
_plant(
    _FILE,
    "race",
    "            acc += As[ty][k] * Bs[k][tx];\n        __syncthreads();\n",
    "            acc += As[ty][k] * Bs[k][tx];\n",
    r"race: ",
    line="acc += As[ty][k] * Bs[k][tx];",
    asked="matmul",
)
_plant(
    _FILE,
    "out of bounds",
    "(b_row < K && col < N)",
    "(col < N)",
    r"out of bounds: reads 4 bytes, .*past the end of",
    line="Bs[ty][tx] = (col < N) ? B[b_row * N + col] : 0.0f;",
    asked="matmul",
)
_plant(
    _FILE,
    "uninitialised",
    "As[ty][tx] = (row < M && a_col < K) ? A[row * K + a_col] : 0.0f;",
    "if (row < M && a_col < K) As[ty][tx] = A[row * K + a_col];",
    r"uninitialised shared memory: reads 4 bytes",
    line="acc += As[ty][k] * Bs[k][tx];",
    asked="matmul",
)
_plant(
    _FILE,
    "strided",
    "    TORCH_CHECK(A.is_contiguous() && B.is_contiguous(),"
    ' "matmul: contiguous matrices, please");\n',
    "",
    _FAR_OFF,
    asked="matmul",
)
_plant(
    _FILE,
    "unwritten",
    "dim3 blocks((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);",
    "dim3 blocks((M + TILE - 1) / TILE, (N + TILE - 1) / TILE);",
    _FAR_OFF,
    asked="matmul",
)
_plant(
    _FILE,
    "precision",
    "            acc += As[ty][k] * Bs[k][tx];\n",
    "            acc = static_cast<float>("
    "c10::BFloat16(acc + As[ty][k] * Bs[k][tx]));\n",
    _FAR_OFF,
    asked="matmul",
)

_FILE = "cuda/row_sum_warp.cu"
_plant(
    _FILE,
    "deadlock",
    "__shfl_down_sync(0xffffffffu, sum, delta)",
    "__shfl_down_sync(0x0000ffffu, sum, delta)",
    r"wrong mask",
    line="sum += __shfl_down_sync(0x0000ffffu, sum, delta);",
    asked="row_sum",
)
_plant(
    _FILE,
    "wrong",
    "int delta = warpSize / 2;",
    "int delta = warpSize / 4;",
    _FAR_OFF,
    asked="row_sum",
)
_plant(
    _FILE,
    "strided",
    '    TORCH_CHECK(x.stride(1) == 1, "row_sum: rows must be dense");\n',
    "",
    rf"{_FAR_OFF}|{_SPECIALS}",
    asked="row_sum",
)
_plant(
    _FILE,
    "dtype",
    "return out;",
    "return out.to(at::kDouble);",
    r"dtype is torch\.float64, not torch\.float32",
    asked="row_sum",
)
_plant(
    _FILE,
    "out of bounds",
    "if (row >= rows)",
    "if (row > rows)",
    _OUTSIDE,
    line="sum += x[row * stride + col];",
    asked="row_sum",
)

_FILE = "cuda/histogram.cu"
_plant(
    _FILE,
    "race",
    "atomicAdd(&local[value], 1);",
    "local[value] += 1;",
    r"race: ",
    line="local[value] += 1;",
    asked="histogram",
)
_plant(
    _FILE,
    "out of bounds",
    "if (value >= 0 && value < BINS)",
    "if (value < BINS)",
    r"out of bounds",
    line="atomicAdd(&local[value], 1);",
    asked="histogram",
)
_plant(
    _FILE,
    "uninitialised",
    "    local[bin] = 0;\n",
    "    ;\n",
    r"uninitialised shared memory: ",
    line="atomicAdd(&local[value], 1);",
    asked="histogram",
)
_plant(
    _FILE,
    "stale",
    "  torch::Tensor counts = torch::zeros",
    "  static torch::Tensor counts = torch::zeros",
    r"earlier call|elements are wrong",
    asked="histogram",
)

_FILE = "cuda/transpose_padded.cu"
_plant(
    _FILE,
    "race",
    "    __syncthreads();\n",
    "",
    _TOO_EARLY,
    line="odata[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];",
    asked="transpose",
)
_plant(
    _FILE,
    "out of bounds",
    "if (x < height && y + j < width)",
    "if (y + j < width)",
    rf"{_OUTSIDE}|{_TOO_EARLY}",
    line="odata[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];",
    asked="transpose",
)
_plant(
    _FILE,
    "wrong",
    "torch::empty({width, height}, in.options())",
    "torch::empty({height, width}, in.options())",
    r"shape is \(39, 75\), not \(75, 39\)",
    asked="transpose",
)
_plant(
    _FILE,
    "unwritten",
    "    transposeNoBankConflicts<<<grid, block>>>"
    "(out.data_ptr<float>(), in.data_ptr<float>(), width, height);\n",
    "",
    rf"no kernel|{_IS_NAN}",
    asked="transpose",
)
_plant(
    "cuda/reduce.cuh",
    "race",
    "  __syncthreads();\n  float total = 0.0f;",
    "  float total = 0.0f;",
    _TOO_EARLY,
    line="for (int warp = 0; warp < WARPS; ++warp) total += partial[warp];",
    asked="row_norm",
)
_plant(
    "cuda/reduce.cuh",
    "nondeterministic",
    """\
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < WARPS; ++warp) total += partial[warp];
""",
    """\
  if (threadIdx.x == 0) partial[0] = 0.0f;
  __syncthreads();
  if (threadIdx.x % 32 == 0) atomicAdd(&partial[0], value);
  __syncthreads();
  const float total = partial[0];
""",
    r"differ between \w+ and \S+ order",
    asked="rms_norm",
)
_FILE = "cuda/rms_norm_templated.cu"
_plant(
    _FILE,
    "wrong",
    "rsqrtf(variance / hidden_size + epsilon)",
    "rsqrtf(variance / BLOCK_SIZE + epsilon)",
    _FAR_OFF,
    asked="rms_norm",
)
_plant(
    _FILE,
    "precision",
    'py::arg("epsilon") = 1e-6',
    'py::arg("epsilon") = 1e-3f',
    _FAR_OFF,
    asked="rms_norm",
)
_plant(
    _FILE,
    "input written",
    "auto out = torch::empty_like(input);",
    "auto out = input;",
    r"write to an input: .*; the reference does not write to its input",
    line="out[base + idx] = input[base + idx] * s_variance * weight[idx];",
    asked="rms_norm",
)
_plant(
    _FILE,
    "strided",
    '  TORCH_CHECK(input.is_contiguous(), "input must be contiguous");\n',
    "",
    rf"{_FAR_OFF}|{_OUTSIDE}|{_SPECIALS}",
    asked="rms_norm",
)

_FILE = "cuda/cross_entropy.cu"
_plant(
    _FILE,
    "large",
    "\tlargest = buffer[0];\n",
    "\tlargest = 0.0f;\n",
    rf"{_SPECIALS}|{_FAR_OFF}",
    asked="cross_entropy",
)
_plant(
    _FILE,
    "race",
    "\tlargest = buffer[0];\n\t__syncthreads();\n",
    "\tlargest = buffer[0];\n",
    r"race: ",
    line="buffer[tid] = sum;",
    asked="cross_entropy",
)
_plant(
    _FILE,
    "wrong",
    "for (int c = tid; c < classes; c += THREADS)\n\t\tsum +=",
    "for (int c = tid + 1; c < classes; c += THREADS)\n\t\tsum +=",
    _FAR_OFF,
    asked="cross_entropy",
)

_FILE = "cuda/bias_relu_accessor.cu"
_plant(
    _FILE,
    "specials",
    "value < scalar_t(0) ? scalar_t(0) : value;",
    "value > scalar_t(0) ? value : scalar_t(0);",
    r"should be NaN and are not",
    asked="bias_relu",
)
_plant(
    _FILE,
    "out of bounds",
    "row < x.size(0) && col < x.size(1)",
    "row <= x.size(0) && col < x.size(1)",
    _OUTSIDE,
    line="const scalar_t value = x[row][col] + bias[col];",
    asked="bias_relu",
)
_plant(
    _FILE,
    "input written",
    "  auto y = torch::empty(x.sizes(), x.options());\n",
    "  auto y = x;\n",
    r"input",
    asked="bias_relu",
)

_FILE = "cuda/column_mean_two_kernels.cu"
_plant(
    _FILE,
    "out of bounds",
    "min(first + ROWS_PER_BLOCK, rows);",
    "first + ROWS_PER_BLOCK;",
    r"out of bounds: reads 4 bytes",
    line="for (int row = first; row < last; ++row) sum += x[row * cols + col];",
    asked="column_mean",
)
_plant(
    _FILE,
    "unwritten",
    "  finish_mean<<<grid.x, COLS_PER_BLOCK, 0, stream>>>(\n"
    "      out.data_ptr<float>(), workspace.data_ptr<float>(), parts, rows, cols);\n",
    "",
    _IS_NAN,
    asked="column_mean",
)
_plant(
    _FILE,
    "out of bounds",
    "torch::empty({parts, cols}, x.options())",
    "torch::empty({parts - 1, cols}, x.options())",
    r"out of bounds: writes 4 bytes",
    line="workspace[blockIdx.y * cols + col] = sum;",
    asked="column_mean",
)
_plant(
    _FILE,
    "race",
    "workspace[blockIdx.y * cols + col] = sum;",
    "workspace[col] = sum;",
    r"race: .*no barrier orders the blocks of a launch",
    line="workspace[col] = sum;",
    asked="column_mean",
)

# ---- Plain host functions, bare kernels and programs --------------------------------

_plant(
    "cuda/scale_add.cu",
    "out of bounds",
    "if (i < n) {",
    "if (i <= n) {",
    r"out of bounds: reads 4 bytes, .*past the end of",
    line="out[i] = alpha * x[i] + y[i];",
    asked="scale_add",
)
_plant(
    "cuda/scale_add.cu",
    "unwritten",
    "const int blocks = (n + threads - 1) / threads;",
    "const int blocks = n / threads;",
    _IS_NAN,
    asked="scale_add",
)
_FILE = "cuda/row_scan.cu"
_plant(
    _FILE,
    "race",
    "      buffer[now][tid] = value;\n      __syncthreads();\n",
    "      buffer[now][tid] = value;\n",
    _TOO_EARLY,
    asked="row_scan",
)
_plant(
    _FILE,
    "race",
    "      now = 1 - now;\n",
    "",
    r"race: ",
    line="buffer[now][tid] = value;",
    asked="row_scan",
)
_plant(
    _FILE,
    "wrong",
    "carry += buffer[now][BLOCK - 1];",
    "carry = buffer[now][BLOCK - 1];",
    _FAR_OFF,
    asked="row_scan",
)
_FILE = "cuda/max_pool.cu"
_plant(
    _FILE,
    "specials",
    "if (value > best || isnan(value)) best = value;",
    "best = fmaxf(best, value);",
    r"should be NaN and are not",
    asked="max_pool",
)
_plant(
    _FILE,
    "out of bounds",
    "int out_height = height / 2, out_width = width / 2;",
    "int out_height = (height + 1) / 2, out_width = width / 2;",
    rf"{_OUTSIDE}|race: ",
    asked="max_pool",
)
_plant(
    "cuda/saxpy_bare.cu",
    "input written",
    "out[tid] = a * x[tid] + y[tid];",
    "out[tid] = ((float *)y)[tid] += a * x[tid];",
    r"write to an input: writes 4 bytes",
    line="out[tid] = ((float *)y)[tid] += a * x[tid];",
    asked="saxpy",
)
_plant(
    "descriptions/stencil.py",
    "out of bounds",
    "(BLOCK + 2 * RADIUS) * 4",
    "BLOCK * 4",
    r"out of bounds: writes 4 bytes, .*dynamic shared memory",
    asked="stencil",
)
_plant(
    "cuda/stencil_bare.cu",
    "race",
    "    __syncthreads();\n",
    "",
    _TOO_EARLY,
    line="result += temp[lindex + offset];",
    asked="stencil",
)
_plant(
    "cuda/stencil_bare.cu",
    "out of bounds",
    "after < n ? in[after] : 0.0f;",
    "in[after];",
    r"out of bounds: reads 4 bytes, .*past the end of",
    line="temp[lindex + blockDim.x] = in[after];",
    asked="stencil",
)
_plant(
    "descriptions/column_sum.py",
    "nondeterministic",
    "deterministic = False\n",
    "deterministic = True\n",
    r"differ between \w+ and \S+ order",
    asked="column_sum",
)
_plant(
    "descriptions/column_sum.py",
    "wrong",
    "out = torch.zeros(cols, dtype=x.dtype, device=x.device)",
    "out = torch.ones(cols, dtype=x.dtype, device=x.device)",
    _FAR_OFF,
    asked="column_sum",
)
_FILE = "cuda/row_max_template.cu"
_plant(
    _FILE,
    "specials",
    "return (a > b || a != a) ? a : b;",
    "return a > b ? a : b;",
    r"should be NaN and are not",
    asked="row_max",
)
_plant(
    _FILE,
    "deadlock",
    """\
        }
        __syncthreads();
    }
""",
    """\
            __syncthreads();
        }
    }
    __syncthreads();
""",
    r"divergent barrier|deadlock",
    line="__syncthreads();",
    asked="row_max",
)
_plant(
    "cuda/program_vector_add.cu",
    "out of bounds",
    "\tif (id < n)\n",
    "",
    r"out of bounds: reads 4 bytes, .*past the end of",
    line="c[id] = a[id] + b[id];",
    asked="vector_add",
)
_plant(
    "cuda/program_softmax.cu",
    "out of bounds",
    "if (idx >= N) return;",
    "if (idx > N) return;",
    r"out of bounds: reads 4 bytes, .*past the end of",
    asked="softmax_program",
)
_plant(
    "cuda/program_softmax.cu",
    "wrong",
    "    maxval = cg::reduce(warp, maxval, cg::greater<float>{});\n",
    "",
    _FAR_OFF,
    asked="softmax_program",
)
_plant(
    "cuda/program_reduce.cu",
    "race",
    "      sdata[tid] += sdata[tid + s];\n    __syncthreads();\n",
    "      sdata[tid] += sdata[tid + s];\n",
    r"race: ",
    line="sdata[tid] += sdata[tid + s];",
    asked="block_sums",
)
_plant(
    "cuda/program_reduce.cu",
    "deadlock",
    "  if (tid == 0)\n",
    "  volatile const float *flag = g_odata;\n"
    "  while (flag[0] != 1.0f) {\n  }\n"
    "  if (tid == 0)\n",
    r"time limit|endless polling|step limit|deadlock|did not end",
    asked="block_sums",
)

# ---- Triton -------------------------------------------------------------------------

_FILE = "triton/softmax.py"
_plant(
    _FILE,
    "mask",
    "row_start_ptr + col_offsets, mask=mask, other=-float('inf'))",
    "row_start_ptr + col_offsets)",
    rf"{_OUTSIDE}|{_FAR_OFF}|{_SPECIALS}",
    asked="softmax",
)
_plant(
    _FILE,
    "mask",
    "softmax_output, mask=mask)",
    "softmax_output)",
    rf"{_OUTSIDE}|{_FAR_OFF}",
    asked="softmax",
)
_plant(_FILE, "mask", "other=-float('inf')", "other=0.0", _FAR_OFF, asked="softmax")
_plant(
    _FILE,
    "large",
    "row_minus_max = row - tl.max(row, axis=0)",
    "row_minus_max = row",
    rf"{_SPECIALS}|{_FAR_OFF}",
    asked="softmax",
)
_plant(
    _FILE,
    "precision",
    "numerator = tl.exp(row_minus_max)",
    "numerator = tl.exp(row_minus_max).to(tl.float16)",
    _FAR_OFF,
    asked="softmax",
)
_plant(
    _FILE,
    "strided",
    "    x = x.contiguous()\n",
    "",
    rf"{_FAR_OFF}|{_OUTSIDE}|{_SPECIALS}|{_IS_NAN}",
    asked="softmax",
)
_plant(
    _FILE,
    "stale",
    "    y = torch.empty_like(x)\n",
    "    cache = softmax.__dict__\n"
    "    if str(x.shape) in cache:\n"
    "        return cache[str(x.shape)]\n"
    "    y = cache[str(x.shape)] = torch.empty_like(x)\n",
    rf"earlier call|{_FAR_OFF}",
    asked="softmax",
)
_FILE = "triton/matmul_autotuned.py"
_plant(
    _FILE,
    "mask",
    "tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)",
    "tl.load(a_ptrs)",
    rf"{_OUTSIDE}|{_SPECIALS}|{_FAR_OFF}",
    asked="matmul",
)
_plant(
    _FILE,
    "wrong",
    "b_ptrs += BLOCK_K * stride_bk",
    "b_ptrs += BLOCK_K * stride_bn",
    rf"{_FAR_OFF}|{_SPECIALS}|{_OUTSIDE}",
    asked="matmul",
)
_plant(
    _FILE,
    "mask",
    "c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)",
    "c_mask = offs_cm[:, None] < M",
    rf"{_OUTSIDE}|{_FAR_OFF}",
    asked="matmul",
)
_FILE = "triton/row_sum_heuristics.py"
_plant(
    _FILE,
    "mask",
    'args["n_cols"] % args["BLOCK"] == 0',
    'args["n_cols"] % args["BLOCK"] != 0',
    rf"{_OUTSIDE}|{_SPECIALS}|{_FAR_OFF}",
    asked="row_sum",
)
_plant(
    _FILE,
    "strided",
    "row * stride_row + cols * stride_col",
    "row * stride_row + cols",
    rf"{_FAR_OFF}|{_SPECIALS}|{_OUTSIDE}",
    asked="row_sum",
)
_FILE = "triton/column_mean_two_kernels.py"
_plant(
    _FILE,
    "mask",
    "mask = (row[:, None] < rows) & (col[None, :] < cols)",
    "mask = col[None, :] < cols",
    rf"{_OUTSIDE}|{_SPECIALS}|{_FAR_OFF}",
    asked="column_mean",
)
_plant(
    _FILE,
    "unwritten",
    "    finish_kernel[(triton.cdiv(cols, block),)]"
    "(workspace, out, parts, rows, cols, BLOCK=block)\n",
    "",
    _IS_NAN,
    asked="column_mean",
)
_plant(
    _FILE,
    "wrong",
    "parts = triton.cdiv(rows, ROWS_PER_PROGRAM)",
    "parts = rows // ROWS_PER_PROGRAM",
    _FAR_OFF,
    asked="column_mean",
)
_FILE = "triton/bias_relu_device_descriptor.py"
_plant(
    _FILE,
    "specials",
    "tl.where(value < 0, 0.0, value)",
    "tl.where(value > 0, value, 0.0)",
    r"should be NaN and are not",
    asked="bias_relu",
)
_plant(
    _FILE,
    "offset",
    "    if x.data_ptr() % 16:\n        x = x.clone()\n",
    "",
    r"align|offset",
    asked="bias_relu",
)
_FILE = "triton/matmul_host_descriptor.py"
_plant(
    _FILE,
    "wrong",
    "for k in range(0, K, BLOCK_K):",
    "for k in range(BLOCK_K, K, BLOCK_K):",
    _FAR_OFF,
    asked="matmul_half",
)
_FILE = "triton/gelu_cuda_device.py"
_plant(
    _FILE,
    "large",
    "0.5 * x * (2.0 - 2.0 / (tl.exp(2.0 * inner) + 1.0))",
    "0.5 * x * (1.0 + (tl.exp(2.0 * inner) - 1.0) / (tl.exp(2.0 * inner) + 1.0))",
    _IS_NAN,
    asked="gelu",
)
_plant(
    _FILE,
    "dtype",
    "dtype=x.dtype",
    "dtype=torch.float64",
    r"dtype is torch\.float64, not torch\.float32",
    asked="gelu",
)
_plant(
    _FILE,
    "mask",
    "tl.store(y_ptr + offsets, gelu(x), mask=mask)",
    "tl.store(y_ptr + offsets, gelu(x))",
    _OUTSIDE,
    line="gelu_kernel[grid](x, y, n, BLOCK_SIZE=1024)",
    asked="gelu",
)
_FILE = "triton/rms_norm_device.py"
_plant(
    _FILE,
    "strided",
    "    assert x.is_contiguous() and weight.is_contiguous()\n",
    "",
    rf"{_FAR_OFF}|{_SPECIALS}|{_OUTSIDE}",
    asked="rms_norm",
)
_plant(
    _FILE,
    "out of bounds",
    "row = tl.program_id(0)\n",
    "row = tl.program_id(0) + 1\n",
    rf"{_OUTSIDE}|{_IS_NAN}",
    asked="rms_norm",
)
_FILE = "triton/layer_norm.py"
_plant(
    _FILE,
    "mask",
    "x = tl.where(cols < N, x - mean, 0.)",
    "x = x - mean",
    _FAR_OFF,
    asked="layer_norm",
)
_plant(
    _FILE,
    "unwritten",
    "    tl.store(Rstd + row, rstd)\n",
    "",
    rf"output 3.*{_IS_NAN}",
    asked="layer_norm",
)
_FILE = "triton/scale_add_out.py"
_plant(
    _FILE,
    "input written",
    "out = torch.empty_like(x, memory_format=torch.contiguous_format)",
    "out = x",
    r"input",
    asked="scale_add",
)
_plant(
    _FILE,
    "unwritten",
    "scale_add_kernel[triton.cdiv(n, 256),]",
    "scale_add_kernel[n // 256,]",
    _IS_NAN,
    asked="scale_add",
)

# ---- KernelBench and gpu-mode -------------------------------------------------------

KERNELBENCH = [
    ("kernelbench/problem_1.py", "kernelbench/solution_1.py"),
    ("kernelbench/problem_2.py", "kernelbench/solution_2.py"),
    # Its own sizes are for a GPU.
    (
        "kernelbench/problem_3.py",
        "kernelbench/solution_3.py",
        "batch_size=5",
        "dim=300",
    ),
]
_plant(
    "kernelbench/solution_1.py",
    "mask",
    "mask = (f[:, None] < features) & (i[None, :] < inner)",
    "mask = i[None, :] < inner",
    rf"{_OUTSIDE}|{_FAR_OFF}|{_SPECIALS}",
    asked=KERNELBENCH[0],
)
_plant(
    "kernelbench/solution_2.py",
    "out of bounds",
    "if (index < batch * out_features) {",
    "if (index <= batch * out_features) {",
    r"out of bounds: reads 4 bytes, .*past the end of",
    asked=KERNELBENCH[1],
)
_plant(
    "kernelbench/solution_2.py",
    "strided",
    "    x = x.contiguous();\n",
    "",
    rf"{_FAR_OFF}|{_SPECIALS}",
    asked=KERNELBENCH[1],
)
_plant(
    "kernelbench/solution_2.py",
    "specials",
    "out[index] = value < 0.0f ? 0.0f : value;",
    "out[index] = fmaxf(value, 0.0f);",
    r"should be NaN and are not",
    asked=KERNELBENCH[1],
)
_FILE = "kernelbench/solution_3.py"
_plant(
    _FILE,
    "input written",
    "auto out = torch::empty_like(x);",
    "auto out = x;",
    r"write to an input: .*; the reference does not write to its input",
    line="out[i] = x[i] + bias[i] - largest - shift;",
    asked=KERNELBENCH[2],
)
_plant(
    _FILE,
    "strided",
    "    CHECK_CONTIGUOUS(x);\n",
    "",
    rf"{_FAR_OFF}|{_SPECIALS}",
    asked=KERNELBENCH[2],
)
_plant(
    _FILE,
    "wrong",
    "auto out = torch::empty_like(x);",
    "auto out = torch::empty_like(y);",
    r"g\+\+ cannot compile",
    line="auto out = torch::empty_like(y);",
    asked=KERNELBENCH[2],
)
_plant(
    "gpu_mode/grayscale/submission.py",
    "wrong",
    "0.5870 * g + 0.1140 * b",
    "0.5870 * b + 0.1140 * g",
    _FAR_OFF,
    asked=("gpu_mode/grayscale",),
)
_plant(
    "gpu_mode/vectoradd/submission.py",
    "mask",
    "tl.store(C_ptr + offsets, a + b, mask=mask)",
    "tl.store(C_ptr + offsets, a + b)",
    _OUTSIDE,
    asked=("gpu_mode/vectoradd",),
)

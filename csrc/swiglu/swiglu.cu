// A linear unit gated by SiLU, and its backward.
//
//   swiglu:          out[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + exp(-x))
//   swiglu_backward: gate_grad[i] = grad[i] * up[i] * silu'(gate[i])
//                    up_grad[i] = grad[i] * silu(gate[i])
//
// Layout   out: contiguous. gate_grad, up_grad: rows of n_cols elements, out_stride_row
//          apart. grad, gate, up: read as (n_elements / n_cols, n_cols) with any two
//          strides. The halves of one tensor are two matrices like any others.
// Traffic  reads 2 and writes 1 element each, once: the ceiling is memory bandwidth at
//          2 reads to 1 write, and of the backward at 3 reads to 2 writes. It computes
//          the gate again, which costs less than reading it would.
// Limits   accumulates in float32, so float16 and bfloat16 are rounded once.
// Mirror   triton_kernels/swiglu/swiglu.py
// Source   Shazeer 2020, arXiv:2002.05202

#include "common/launch.cuh"
#include "common/math.cuh"
#include "common/vec.cuh"

namespace {
// Small blocks with little in each thread: on an H200, 16 elements of bfloat16 in a
// thread cost add and gelu a tenth of the bandwidth, and 256 threads in a block up to
// 2 %.
constexpr int NUM_THREADS = 128;
constexpr int ELEMENTS_PER_THREAD = 8;
constexpr int BLOCK_SIZE = NUM_THREADS * ELEMENTS_PER_THREAD;
}  // namespace

// exp(-|x|). The fast form is for types that do not resolve its error.
template <typename T>
__device__ __forceinline__ float exp_minus_abs(float x) {
    return sizeof(T) == 4 ? accurate_exp(-fabsf(x)) : fast_exp(-fabsf(x));
}

template <typename T, int VEC_SIZE, bool STRIDED>
__global__ void __launch_bounds__(NUM_THREADS) swiglu_kernel(
    T* __restrict__ out_ptr,         // (n_elements)
    const T* __restrict__ gate_ptr,  // (n_elements / n_cols, n_cols)
    const T* __restrict__ up_ptr,    // (n_elements / n_cols, n_cols)
    int64_t n_elements,
    int64_t n_cols,
    int64_t gate_stride_row,
    int64_t gate_stride_col,
    int64_t up_stride_row,
    int64_t up_stride_col
) {
    constexpr int VECS_PER_THREAD = ELEMENTS_PER_THREAD / VEC_SIZE;

    // -- tile: a block owns BLOCK_SIZE neighbouring elements
    const int64_t block_start = int64_t{blockIdx.x} * BLOCK_SIZE;

    // -- load: neighbouring threads read neighbouring vectors
    Vec<T, VEC_SIZE> gate[VECS_PER_THREAD], up[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        gate[i] = load_vec<VEC_SIZE, STRIDED>(
            gate_ptr, element, n_elements, n_cols, gate_stride_row, gate_stride_col
        );
        up[i] = load_vec<VEC_SIZE, STRIDED>(
            up_ptr, element, n_elements, n_cols, up_stride_row, up_stride_col
        );
    }

    // -- compute: in float32, rounded once
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        Vec<float, VEC_SIZE> out = to_float(up[i]);
        const Vec<float, VEC_SIZE> x = to_float(gate[i]);
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) {
            out[j] *= silu(x[j], exp_minus_abs<T>(x[j]));
        }
        gate[i] = from_float<T>(out);
    }

    // -- store: past the end nothing is written
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        store(out_ptr + element, gate[i], n_elements - element);
    }
}

template <typename T, int VEC_SIZE, bool STRIDED>
__global__ void __launch_bounds__(NUM_THREADS) swiglu_backward_kernel(
    T* __restrict__ gate_grad_ptr,   // (n_elements / n_cols, n_cols)
    T* __restrict__ up_grad_ptr,     // (n_elements / n_cols, n_cols)
    const T* __restrict__ grad_ptr,  // (n_elements / n_cols, n_cols)
    const T* __restrict__ gate_ptr,  // (n_elements / n_cols, n_cols)
    const T* __restrict__ up_ptr,    // (n_elements / n_cols, n_cols)
    int64_t n_elements,
    int64_t n_cols,
    int64_t out_stride_row,
    int64_t grad_stride_row,
    int64_t grad_stride_col,
    int64_t gate_stride_row,
    int64_t gate_stride_col,
    int64_t up_stride_row,
    int64_t up_stride_col
) {
    constexpr int VECS_PER_THREAD = ELEMENTS_PER_THREAD / VEC_SIZE;

    // -- tile: a block owns BLOCK_SIZE neighbouring elements
    const int64_t block_start = int64_t{blockIdx.x} * BLOCK_SIZE;

    // -- load: neighbouring threads read neighbouring vectors
    Vec<T, VEC_SIZE> grad[VECS_PER_THREAD];
    Vec<T, VEC_SIZE> gate[VECS_PER_THREAD], up[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        grad[i] = load_vec<VEC_SIZE, STRIDED>(
            grad_ptr, element, n_elements, n_cols, grad_stride_row, grad_stride_col
        );
        gate[i] = load_vec<VEC_SIZE, STRIDED>(
            gate_ptr, element, n_elements, n_cols, gate_stride_row, gate_stride_col
        );
        up[i] = load_vec<VEC_SIZE, STRIDED>(
            up_ptr, element, n_elements, n_cols, up_stride_row, up_stride_col
        );
    }

    // -- compute: in float32, rounded once. The derivative comes first: where it is 0,
    // grad * up may be inf
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        Vec<float, VEC_SIZE> up_grad = to_float(grad[i]);
        Vec<float, VEC_SIZE> gate_grad = to_float(up[i]);
        const Vec<float, VEC_SIZE> x = to_float(gate[i]);
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) {
            const float e = exp_minus_abs<T>(x[j]);
            gate_grad[j] *= up_grad[j] * silu_derivative(x[j], e);
            up_grad[j] *= silu(x[j], e);
        }
        gate[i] = from_float<T>(gate_grad);
        up[i] = from_float<T>(up_grad);
    }

    // -- store: past the end nothing is written
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        store_vec<STRIDED>(
            gate_grad_ptr, gate[i], element, n_elements, n_cols, out_stride_row
        );
        store_vec<STRIDED>(
            up_grad_ptr, up[i], element, n_elements, n_cols, out_stride_row
        );
    }
}

// Vectors of 16 bytes where every pointer and row allows them, else one element at a
// time.
cudaError_t swiglu(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* gate,
    const void* up,
    int64_t n_elements,
    int64_t n_cols,
    int64_t gate_stride_row,
    int64_t gate_stride_col,
    int64_t up_stride_row,
    int64_t up_stride_col,
    [[maybe_unused]] int rung
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        const bool strided =
            n_cols != n_elements || gate_stride_col != 1 || up_stride_col != 1;
        const bool vectors = has_vectors<T>(out, 0, 1) &&
                             has_vectors<T>(gate, gate_stride_row, gate_stride_col) &&
                             has_vectors<T>(up, up_stride_row, up_stride_col) &&
                             (!strided || n_cols % VEC_SIZE == 0);
        const auto kernel = vectors && strided ? swiglu_kernel<T, VEC_SIZE, true>
                            : vectors          ? swiglu_kernel<T, VEC_SIZE, false>
                            : strided          ? swiglu_kernel<T, 1, true>
                                               : swiglu_kernel<T, 1, false>;
        return launch(
            Plan{kernel, dim3(ceil_div(n_elements, BLOCK_SIZE)), dim3(NUM_THREADS)},
            static_cast<T*>(out),
            static_cast<const T*>(gate),
            static_cast<const T*>(up),
            n_elements,
            n_cols,
            gate_stride_row,
            gate_stride_col,
            up_stride_row,
            up_stride_col
        );
    });
}

cudaError_t swiglu_backward(
    const Launcher& launch,
    DType dtype,
    void* gate_grad,
    void* up_grad,
    const void* grad,
    const void* gate,
    const void* up,
    int64_t n_elements,
    int64_t n_cols,
    int64_t out_stride_row,
    int64_t grad_stride_row,
    int64_t grad_stride_col,
    int64_t gate_stride_row,
    int64_t gate_stride_col,
    int64_t up_stride_row,
    int64_t up_stride_col,
    [[maybe_unused]] int rung
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        const bool strided = n_cols != n_elements || grad_stride_col != 1 ||
                             gate_stride_col != 1 || up_stride_col != 1;
        const bool vectors = has_vectors<T>(gate_grad, out_stride_row, 1) &&
                             has_vectors<T>(up_grad, out_stride_row, 1) &&
                             has_vectors<T>(grad, grad_stride_row, grad_stride_col) &&
                             has_vectors<T>(gate, gate_stride_row, gate_stride_col) &&
                             has_vectors<T>(up, up_stride_row, up_stride_col) &&
                             (!strided || n_cols % VEC_SIZE == 0);
        const auto kernel = vectors && strided
                                ? swiglu_backward_kernel<T, VEC_SIZE, true>
                            : vectors ? swiglu_backward_kernel<T, VEC_SIZE, false>
                            : strided ? swiglu_backward_kernel<T, 1, true>
                                      : swiglu_backward_kernel<T, 1, false>;
        return launch(
            Plan{kernel, dim3(ceil_div(n_elements, BLOCK_SIZE)), dim3(NUM_THREADS)},
            static_cast<T*>(gate_grad),
            static_cast<T*>(up_grad),
            static_cast<const T*>(grad),
            static_cast<const T*>(gate),
            static_cast<const T*>(up),
            n_elements,
            n_cols,
            out_stride_row,
            grad_stride_row,
            grad_stride_col,
            gate_stride_row,
            gate_stride_col,
            up_stride_row,
            up_stride_col
        );
    });
}

// A linear unit gated by GELU, exact or by its tanh approximation, and its backward.
//
//   geglu:          out[i] = value[i] * gelu(gate[i])
//   geglu_backward: value_grad[i] = grad[i] * gelu(gate[i])
//                   gate_grad[i] = grad[i] * value[i] * gelu'(gate[i])
//
// Layout   out: contiguous. value_grad, gate_grad: rows of n_cols elements,
//          out_stride_row apart. grad, value, gate: read as (n_elements / n_cols,
//          n_cols) with any two strides. The halves of one tensor are two matrices like
//          any others.
// Traffic  reads 2 and writes 1 element each, once: the ceiling is memory bandwidth at
//          2 reads to 1 write, and of the backward at 3 reads to 2 writes. It computes
//          the gate again, which costs less than reading it would.
// Limits   accumulates in float32, so float16 and bfloat16 are rounded once.
// Mirror   triton_kernels/geglu/geglu.py
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

// The gate and its derivative. The fast form is for types that do not resolve its error.
template <typename T, bool APPROXIMATE_TANH>
__device__ __forceinline__ float gelu(float x) {
    if constexpr (APPROXIMATE_TANH) return gelu_tanh(x);
    return sizeof(T) == 4 ? gelu_erf(x) : gelu_erf_fast(x);
}

template <typename T, bool APPROXIMATE_TANH>
__device__ __forceinline__ float gelu_derivative(float x) {
    if constexpr (APPROXIMATE_TANH) return gelu_tanh_derivative(x);
    return sizeof(T) == 4 ? gelu_erf_derivative(x) : gelu_erf_fast_derivative(x);
}

template <typename T, int VEC_SIZE, bool STRIDED, bool APPROXIMATE_TANH>
__global__ void __launch_bounds__(NUM_THREADS) geglu_kernel(
    T* __restrict__ out_ptr,          // (n_elements)
    const T* __restrict__ value_ptr,  // (n_elements / n_cols, n_cols)
    const T* __restrict__ gate_ptr,   // (n_elements / n_cols, n_cols)
    int64_t n_elements,
    int64_t n_cols,
    int64_t value_stride_row,
    int64_t value_stride_col,
    int64_t gate_stride_row,
    int64_t gate_stride_col
) {
    constexpr int VECS_PER_THREAD = ELEMENTS_PER_THREAD / VEC_SIZE;

    // -- tile: a block owns BLOCK_SIZE neighbouring elements
    const int64_t block_start = int64_t{blockIdx.x} * BLOCK_SIZE;

    // -- load: neighbouring threads read neighbouring vectors
    Vec<T, VEC_SIZE> value[VECS_PER_THREAD], gate[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        value[i] = load_vec<VEC_SIZE, STRIDED>(
            value_ptr, element, n_elements, n_cols, value_stride_row, value_stride_col
        );
        gate[i] = load_vec<VEC_SIZE, STRIDED>(
            gate_ptr, element, n_elements, n_cols, gate_stride_row, gate_stride_col
        );
    }

    // -- compute: in float32, rounded once
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        Vec<float, VEC_SIZE> out = to_float(value[i]);
        const Vec<float, VEC_SIZE> x = to_float(gate[i]);
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) out[j] *= gelu<T, APPROXIMATE_TANH>(x[j]);
        value[i] = from_float<T>(out);
    }

    // -- store: past the end nothing is written
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        store(out_ptr + element, value[i], n_elements - element);
    }
}

template <typename T, int VEC_SIZE, bool STRIDED, bool APPROXIMATE_TANH>
__global__ void __launch_bounds__(NUM_THREADS) geglu_backward_kernel(
    T* __restrict__ value_grad_ptr,   // (n_elements / n_cols, n_cols)
    T* __restrict__ gate_grad_ptr,    // (n_elements / n_cols, n_cols)
    const T* __restrict__ grad_ptr,   // (n_elements / n_cols, n_cols)
    const T* __restrict__ value_ptr,  // (n_elements / n_cols, n_cols)
    const T* __restrict__ gate_ptr,   // (n_elements / n_cols, n_cols)
    int64_t n_elements,
    int64_t n_cols,
    int64_t out_stride_row,
    int64_t grad_stride_row,
    int64_t grad_stride_col,
    int64_t value_stride_row,
    int64_t value_stride_col,
    int64_t gate_stride_row,
    int64_t gate_stride_col
) {
    constexpr int VECS_PER_THREAD = ELEMENTS_PER_THREAD / VEC_SIZE;

    // -- tile: a block owns BLOCK_SIZE neighbouring elements
    const int64_t block_start = int64_t{blockIdx.x} * BLOCK_SIZE;

    // -- load: neighbouring threads read neighbouring vectors
    Vec<T, VEC_SIZE> grad[VECS_PER_THREAD];
    Vec<T, VEC_SIZE> value[VECS_PER_THREAD], gate[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        grad[i] = load_vec<VEC_SIZE, STRIDED>(
            grad_ptr, element, n_elements, n_cols, grad_stride_row, grad_stride_col
        );
        value[i] = load_vec<VEC_SIZE, STRIDED>(
            value_ptr, element, n_elements, n_cols, value_stride_row, value_stride_col
        );
        gate[i] = load_vec<VEC_SIZE, STRIDED>(
            gate_ptr, element, n_elements, n_cols, gate_stride_row, gate_stride_col
        );
    }

    // -- compute: in float32, rounded once. The derivative comes first: where it is 0,
    // grad * value may be inf
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        Vec<float, VEC_SIZE> value_grad = to_float(grad[i]);
        Vec<float, VEC_SIZE> gate_grad = to_float(value[i]);
        const Vec<float, VEC_SIZE> x = to_float(gate[i]);
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) {
            gate_grad[j] *= value_grad[j] * gelu_derivative<T, APPROXIMATE_TANH>(x[j]);
            value_grad[j] *= gelu<T, APPROXIMATE_TANH>(x[j]);
        }
        value[i] = from_float<T>(value_grad);
        gate[i] = from_float<T>(gate_grad);
    }

    // -- store: past the end nothing is written
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        store_vec<STRIDED>(
            value_grad_ptr, value[i], element, n_elements, n_cols, out_stride_row
        );
        store_vec<STRIDED>(
            gate_grad_ptr, gate[i], element, n_elements, n_cols, out_stride_row
        );
    }
}

namespace {

template <typename T, bool APPROXIMATE_TANH>
auto choose_geglu_kernel(bool vectors, bool strided) {
    constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
    return vectors && strided ? geglu_kernel<T, VEC_SIZE, true, APPROXIMATE_TANH>
           : vectors          ? geglu_kernel<T, VEC_SIZE, false, APPROXIMATE_TANH>
           : strided          ? geglu_kernel<T, 1, true, APPROXIMATE_TANH>
                              : geglu_kernel<T, 1, false, APPROXIMATE_TANH>;
}

template <typename T, bool APPROXIMATE_TANH>
auto choose_geglu_backward_kernel(bool vectors, bool strided) {
    constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
    return vectors && strided
               ? geglu_backward_kernel<T, VEC_SIZE, true, APPROXIMATE_TANH>
           : vectors ? geglu_backward_kernel<T, VEC_SIZE, false, APPROXIMATE_TANH>
           : strided ? geglu_backward_kernel<T, 1, true, APPROXIMATE_TANH>
                     : geglu_backward_kernel<T, 1, false, APPROXIMATE_TANH>;
}

}  // namespace

// Vectors of 16 bytes where every pointer and row allows them, else one element at a
// time.
cudaError_t geglu(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* value,
    const void* gate,
    int64_t n_elements,
    int64_t n_cols,
    int64_t value_stride_row,
    int64_t value_stride_col,
    int64_t gate_stride_row,
    int64_t gate_stride_col,
    bool approximate_tanh,
    [[maybe_unused]] int rung
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        const bool strided =
            n_cols != n_elements || value_stride_col != 1 || gate_stride_col != 1;
        const bool vectors =
            has_vectors<T>(out, 0, 1) &&
            has_vectors<T>(value, value_stride_row, value_stride_col) &&
            has_vectors<T>(gate, gate_stride_row, gate_stride_col) &&
            (!strided || n_cols % VEC_SIZE == 0);
        const auto kernel = approximate_tanh
                                ? choose_geglu_kernel<T, true>(vectors, strided)
                                : choose_geglu_kernel<T, false>(vectors, strided);
        return launch(
            Plan{kernel, dim3(ceil_div(n_elements, BLOCK_SIZE)), dim3(NUM_THREADS)},
            static_cast<T*>(out),
            static_cast<const T*>(value),
            static_cast<const T*>(gate),
            n_elements,
            n_cols,
            value_stride_row,
            value_stride_col,
            gate_stride_row,
            gate_stride_col
        );
    });
}

cudaError_t geglu_backward(
    const Launcher& launch,
    DType dtype,
    void* value_grad,
    void* gate_grad,
    const void* grad,
    const void* value,
    const void* gate,
    int64_t n_elements,
    int64_t n_cols,
    int64_t out_stride_row,
    int64_t grad_stride_row,
    int64_t grad_stride_col,
    int64_t value_stride_row,
    int64_t value_stride_col,
    int64_t gate_stride_row,
    int64_t gate_stride_col,
    bool approximate_tanh,
    [[maybe_unused]] int rung
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        const bool strided = n_cols != n_elements || grad_stride_col != 1 ||
                             value_stride_col != 1 || gate_stride_col != 1;
        const bool vectors =
            has_vectors<T>(value_grad, out_stride_row, 1) &&
            has_vectors<T>(gate_grad, out_stride_row, 1) &&
            has_vectors<T>(grad, grad_stride_row, grad_stride_col) &&
            has_vectors<T>(value, value_stride_row, value_stride_col) &&
            has_vectors<T>(gate, gate_stride_row, gate_stride_col) &&
            (!strided || n_cols % VEC_SIZE == 0);
        const auto kernel =
            approximate_tanh ? choose_geglu_backward_kernel<T, true>(vectors, strided)
                             : choose_geglu_backward_kernel<T, false>(vectors, strided);
        return launch(
            Plan{kernel, dim3(ceil_div(n_elements, BLOCK_SIZE)), dim3(NUM_THREADS)},
            static_cast<T*>(value_grad),
            static_cast<T*>(gate_grad),
            static_cast<const T*>(grad),
            static_cast<const T*>(value),
            static_cast<const T*>(gate),
            n_elements,
            n_cols,
            out_stride_row,
            grad_stride_row,
            grad_stride_col,
            value_stride_row,
            value_stride_col,
            gate_stride_row,
            gate_stride_col
        );
    });
}

// An activation of every element, by name, and its backward.
//
//   activation:          out[i] = f(x[i])
//   activation_backward: out[i] = grad[i] * f'(x[i])
//   f: relu, leaky_relu (slope 0.01), gelu, gelu_tanh, silu
//
// Layout   out: contiguous. grad, x: read as (n_elements / n_cols, n_cols) with any two
//          strides.
// Traffic  reads and writes every element once: the ceiling is the bandwidth of a copy,
//          and of the backward that of 2 reads to 1 write.
// Limits   accumulates in float32, so float16 and bfloat16 are rounded once.
// Mirror   triton_kernels/activation/activation.py
// Source   Maas et al. 2013, leaky ReLU; Hendrycks & Gimpel 2016, arXiv:1606.08415, GELU
//          and SiLU

#include "common/epilogue.cuh"
#include "common/launch.cuh"
#include "common/vec.cuh"

namespace {
// Small blocks with little in each thread: on an H200, 16 elements of bfloat16 in a
// thread cost a tenth of the bandwidth, and 256 threads in a block up to 2 %.
constexpr int NUM_THREADS = 128;
constexpr int ELEMENTS_PER_THREAD = 8;
constexpr int BLOCK_SIZE = NUM_THREADS * ELEMENTS_PER_THREAD;

// The gradient of x from that of the result, with an error below what T resolves.
template <Activation ACTIVATION, typename T>
__device__ __forceinline__ float backward_of(float grad, float x) {
    constexpr bool IS_FLOAT32 = sizeof(T) == 4;
    switch (ACTIVATION) {
        case Activation::none:
            return grad;
        case Activation::relu:
            return relu_backward(grad, x);
        case Activation::leaky_relu:
            return leaky_relu_backward(grad, x);
        case Activation::gelu:
            return grad *
                   (IS_FLOAT32 ? gelu_erf_derivative(x) : gelu_erf_fast_derivative(x));
        case Activation::gelu_tanh:
            return grad * gelu_tanh_derivative(x);
        case Activation::silu:
            return grad *
                   silu_derivative(
                       x, IS_FLOAT32 ? accurate_exp(-fabsf(x)) : fast_exp(-fabsf(x))
                   );
    }
    return grad;
}
}  // namespace

template <typename T, int VEC_SIZE, bool STRIDED, Activation ACTIVATION>
__global__ void __launch_bounds__(NUM_THREADS) activation_kernel(
    T* __restrict__ out_ptr,      // (n_elements)
    const T* __restrict__ x_ptr,  // (n_elements / n_cols, n_cols)
    int64_t n_elements,
    int64_t n_cols,
    int64_t x_stride_row,
    int64_t x_stride_col
) {
    constexpr int VECS_PER_THREAD = ELEMENTS_PER_THREAD / VEC_SIZE;

    // -- tile: a block owns BLOCK_SIZE neighbouring elements
    const int64_t block_start = int64_t{blockIdx.x} * BLOCK_SIZE;

    // -- load: neighbouring threads read neighbouring vectors
    Vec<T, VEC_SIZE> x[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        x[i] = load_vec<VEC_SIZE, STRIDED>(
            x_ptr, element, n_elements, n_cols, x_stride_row, x_stride_col
        );
    }

    // -- compute: in float32, rounded once
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        Vec<float, VEC_SIZE> y = to_float(x[i]);
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) {
            y[j] = activate<ACTIVATION, T>(y[j]);
        }
        x[i] = from_float<T>(y);
    }

    // -- store: past the end nothing is written
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        store(out_ptr + element, x[i], n_elements - element);
    }
}

template <typename T, int VEC_SIZE, bool STRIDED, Activation ACTIVATION>
__global__ void __launch_bounds__(NUM_THREADS) activation_backward_kernel(
    T* __restrict__ out_ptr,         // (n_elements)
    const T* __restrict__ grad_ptr,  // (n_elements / n_cols, n_cols)
    const T* __restrict__ x_ptr,     // (n_elements / n_cols, n_cols)
    int64_t n_elements,
    int64_t n_cols,
    int64_t grad_stride_row,
    int64_t grad_stride_col,
    int64_t x_stride_row,
    int64_t x_stride_col
) {
    constexpr int VECS_PER_THREAD = ELEMENTS_PER_THREAD / VEC_SIZE;

    // -- tile: a block owns BLOCK_SIZE neighbouring elements
    const int64_t block_start = int64_t{blockIdx.x} * BLOCK_SIZE;

    // -- load: neighbouring threads read neighbouring vectors
    Vec<T, VEC_SIZE> grad[VECS_PER_THREAD], x[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        grad[i] = load_vec<VEC_SIZE, STRIDED>(
            grad_ptr, element, n_elements, n_cols, grad_stride_row, grad_stride_col
        );
        x[i] = load_vec<VEC_SIZE, STRIDED>(
            x_ptr, element, n_elements, n_cols, x_stride_row, x_stride_col
        );
    }

    // -- compute: in float32, rounded once
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        Vec<float, VEC_SIZE> out = to_float(grad[i]);
        const Vec<float, VEC_SIZE> value = to_float(x[i]);
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) {
            out[j] = backward_of<ACTIVATION, T>(out[j], value[j]);
        }
        x[i] = from_float<T>(out);
    }

    // -- store: past the end nothing is written
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        store(out_ptr + element, x[i], n_elements - element);
    }
}

namespace {

template <typename T, Activation ACTIVATION>
auto choose_activation_kernel(bool vectors, bool strided) {
    constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
    return vectors && strided ? activation_kernel<T, VEC_SIZE, true, ACTIVATION>
           : vectors          ? activation_kernel<T, VEC_SIZE, false, ACTIVATION>
           : strided          ? activation_kernel<T, 1, true, ACTIVATION>
                              : activation_kernel<T, 1, false, ACTIVATION>;
}

template <typename T, Activation ACTIVATION>
auto choose_activation_backward_kernel(bool vectors, bool strided) {
    constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
    return vectors && strided
               ? activation_backward_kernel<T, VEC_SIZE, true, ACTIVATION>
           : vectors ? activation_backward_kernel<T, VEC_SIZE, false, ACTIVATION>
           : strided ? activation_backward_kernel<T, 1, true, ACTIVATION>
                     : activation_backward_kernel<T, 1, false, ACTIVATION>;
}

}  // namespace

// Vectors of 16 bytes where every pointer and row allows them, else one element at a
// time.
cudaError_t activation(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* x,
    int64_t n_elements,
    int64_t n_cols,
    int64_t x_stride_row,
    int64_t x_stride_col,
    int activation,
    [[maybe_unused]] int rung
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        const bool strided = n_cols != n_elements || x_stride_col != 1;
        const bool vectors = has_vectors<T>(out, 0, 1) &&
                             has_vectors<T>(x, x_stride_row, x_stride_col) &&
                             (!strided || n_cols % VEC_SIZE == 0);
        const auto start = [&]<Activation ACTIVATION>() {
            const auto kernel =
                choose_activation_kernel<T, ACTIVATION>(vectors, strided);
            return launch(
                Plan{kernel, dim3(ceil_div(n_elements, BLOCK_SIZE)), dim3(NUM_THREADS)},
                static_cast<T*>(out),
                static_cast<const T*>(x),
                n_elements,
                n_cols,
                x_stride_row,
                x_stride_col
            );
        };
        return dispatch_activation<cudaError_t>(Activation{activation}, start);
    });
}

cudaError_t activation_backward(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* grad,
    const void* x,
    int64_t n_elements,
    int64_t n_cols,
    int64_t grad_stride_row,
    int64_t grad_stride_col,
    int64_t x_stride_row,
    int64_t x_stride_col,
    int activation,
    [[maybe_unused]] int rung
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        const bool strided =
            n_cols != n_elements || grad_stride_col != 1 || x_stride_col != 1;
        const bool vectors = has_vectors<T>(out, 0, 1) &&
                             has_vectors<T>(grad, grad_stride_row, grad_stride_col) &&
                             has_vectors<T>(x, x_stride_row, x_stride_col) &&
                             (!strided || n_cols % VEC_SIZE == 0);
        const auto start = [&]<Activation ACTIVATION>() {
            const auto kernel =
                choose_activation_backward_kernel<T, ACTIVATION>(vectors, strided);
            return launch(
                Plan{kernel, dim3(ceil_div(n_elements, BLOCK_SIZE)), dim3(NUM_THREADS)},
                static_cast<T*>(out),
                static_cast<const T*>(grad),
                static_cast<const T*>(x),
                n_elements,
                n_cols,
                grad_stride_row,
                grad_stride_col,
                x_stride_row,
                x_stride_col
            );
        };
        return dispatch_activation<cudaError_t>(Activation{activation}, start);
    });
}

// Adds two tensors, either of which may be broadcast.
//
//   out[i] = x[i] + y[i]
//
// Layout   out: contiguous. x, y: read as (n_elements / n_cols, n_cols) with any two
//          strides, 0 along a broadcast dimension.
// Traffic  reads 2 and writes 1 element each, once: the ceiling is memory bandwidth at
//          2 reads to 1 write.
// Limits   accumulates in float32, so float16 and bfloat16 are rounded once.
// Mirror   triton_kernels/add/add.py
// Source   CUDA C++ Programming Guide, section 2.1 (vector addition)

#include "common/launch.cuh"
#include "common/vec.cuh"

namespace {
// Small blocks with little in each thread: 16 elements of bfloat16 in a thread cost add
// a tenth of its bandwidth on an H200, and 256 threads in a block up to 2 %.
constexpr int NUM_THREADS = 128;
constexpr int ELEMENTS_PER_THREAD = 8;
constexpr int BLOCK_SIZE = NUM_THREADS * ELEMENTS_PER_THREAD;
}  // namespace

template <typename T, int VEC_SIZE, bool STRIDED>
__global__ void __launch_bounds__(NUM_THREADS) add_kernel(
    T* __restrict__ out_ptr,      // (n_elements)
    const T* __restrict__ x_ptr,  // (n_elements / n_cols, n_cols)
    const T* __restrict__ y_ptr,  // (n_elements / n_cols, n_cols)
    int64_t n_elements,
    int64_t n_cols,
    int64_t x_stride_row,
    int64_t x_stride_col,
    int64_t y_stride_row,
    int64_t y_stride_col
) {
    constexpr int VECS_PER_THREAD = ELEMENTS_PER_THREAD / VEC_SIZE;

    // -- tile: a block owns BLOCK_SIZE neighbouring elements
    const int64_t block_start = int64_t{blockIdx.x} * BLOCK_SIZE;

    // -- load: neighbouring threads read neighbouring vectors
    Vec<T, VEC_SIZE> x[VECS_PER_THREAD], y[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        x[i] = load_vec<VEC_SIZE, STRIDED>(
            x_ptr, element, n_elements, n_cols, x_stride_row, x_stride_col
        );
        y[i] = load_vec<VEC_SIZE, STRIDED>(
            y_ptr, element, n_elements, n_cols, y_stride_row, y_stride_col
        );
    }

    // -- compute: in float32, rounded once
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        Vec<float, VEC_SIZE> sum = to_float(x[i]);
        const Vec<float, VEC_SIZE> addend = to_float(y[i]);
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) sum[j] += addend[j];
        x[i] = from_float<T>(sum);
    }

    // -- store: past the end nothing is written
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        const int64_t element =
            block_start + (i * NUM_THREADS + threadIdx.x) * VEC_SIZE;
        store(out_ptr + element, x[i], n_elements - element);
    }
}

// Vectors of 16 bytes where every pointer and row allows them, else one element at a
// time.
cudaError_t add(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* x,
    const void* y,
    int64_t n_elements,
    int64_t n_cols,
    int64_t x_stride_row,
    int64_t x_stride_col,
    int64_t y_stride_row,
    int64_t y_stride_col,
    [[maybe_unused]] int rung
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        const bool strided =
            n_cols != n_elements || x_stride_col != 1 || y_stride_col != 1;
        const bool vectors = has_vectors<T>(out, 0, 1) &&
                             has_vectors<T>(x, x_stride_row, x_stride_col) &&
                             has_vectors<T>(y, y_stride_row, y_stride_col) &&
                             (!strided || n_cols % VEC_SIZE == 0);
        const auto kernel = vectors && strided ? add_kernel<T, VEC_SIZE, true>
                            : vectors          ? add_kernel<T, VEC_SIZE, false>
                            : strided          ? add_kernel<T, 1, true>
                                               : add_kernel<T, 1, false>;
        return launch(
            Plan{kernel, dim3(ceil_div(n_elements, BLOCK_SIZE)), dim3(NUM_THREADS)},
            static_cast<T*>(out),
            static_cast<const T*>(x),
            static_cast<const T*>(y),
            n_elements,
            n_cols,
            x_stride_row,
            x_stride_col,
            y_stride_row,
            y_stride_col
        );
    });
}

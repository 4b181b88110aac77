// Dropout: each element becomes 0 with probability p, the others are scaled up.
//
//   out[i] = word[i] >= threshold ? x[i] * scale : 0
//   threshold = round(p * 2^32), scale = 1 / (1 - p)
//   word[i]: word i % 4 of the Philox4x32-10 block with counter i / 4 and key seed
//
// Layout   out: contiguous; i counts its elements. x: read as (n_elements / n_cols,
//          n_cols) with any two strides.
// Traffic  reads and writes every element once: the ceiling is the bandwidth of a copy.
//          No mask is stored: the backward is the same kernel, with the same seed, over
//          the gradient, and makes the same words again.
// Limits   multiplies in float32, so float16 and bfloat16 are rounded once. p counts in
//          steps of 2^-32.
// Mirror   triton_kernels/dropout/dropout.py
// Source   Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"

#include "dropout/first.cuh"
#include "dropout/twin.cuh"

cudaError_t dropout(
    const Launcher& launch, DType dtype, void* out, const void* x, int64_t n_elements,
    int64_t n_cols, int64_t x_stride_row, int64_t x_stride_col, const void* seed_ptr,
    int64_t seed, int64_t threshold, float scale, int rung
) {
    return dispatch_elements(
        dtype, n_elements, n_cols, {{out}, {x, x_stride_row, x_stride_col}},
        [&]<typename T, int VEC_SIZE, bool STRIDED> {
            const auto first = dropout_first_kernel<T>;
            const auto twin = dropout_kernel<T, VEC_SIZE, STRIDED>;
            return launch(
                plan_elements(rung, first, twin, n_elements, DROPOUT_PER_THREAD<T>),
                out, x, n_elements, n_cols, x_stride_row, x_stride_col, seed_ptr, seed,
                threshold, scale
            );
        }
    );
}

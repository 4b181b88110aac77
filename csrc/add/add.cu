// Adds two tensors, either of which may be broadcast.
//
//   out[i] = x[i] + y[i]
//
// Layout   out: contiguous. x, y: read as (n_elements / n_cols, n_cols) with any two
//          strides, 0 along a broadcast dimension.
// Traffic  reads 2 and writes 1 element each, once: the ceiling is memory bandwidth at
//          2 reads to 1 write.
// Limits   computes in float32, so float16 and bfloat16 are rounded once.
// Mirror   triton_kernels/add/add.py
// Source   CUDA C++ Programming Guide, section 2.1 (vector addition)

#include "add/first.cuh"
#include "add/twin.cuh"

cudaError_t add(
    const Launcher& launch, DType dtype, void* out, const void* x, const void* y,
    int64_t n_elements, int64_t n_cols, int64_t x_stride_row, int64_t x_stride_col,
    int64_t y_stride_row, int64_t y_stride_col, int rung
) {
    return dispatch_elements(
        dtype, n_elements, n_cols,
        {{out}, {x, x_stride_row, x_stride_col}, {y, y_stride_row, y_stride_col}},
        [&]<typename T, int VEC_SIZE, bool STRIDED> {
            return launch(
                plan_elements(
                    rung, add_first_kernel<T>, add_kernel<T, VEC_SIZE, STRIDED>,
                    n_elements
                ),
                out, x, y, n_elements, n_cols, x_stride_row, x_stride_col, y_stride_row,
                y_stride_col
            );
        }
    );
}

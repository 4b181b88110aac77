// Softmax of every row of a matrix, and its backward.
//
//   softmax:          out[row, :] = exp(x[row, :] - m) / sum(exp(x[row, :] - m)),
//                     m = max(x[row, :])
//   softmax_backward: out[row, :] = y[row, :] * (grad[row, :] - s),
//                     s = sum(grad[row, :] * y[row, :]), y what softmax returned
//
// Layout   out: (n_rows, n_cols), contiguous. x, grad, y: columns contiguous; row r of x
//          begins at
//          (r / rows_per_batch) * x_stride_batch + (r % rows_per_batch) * x_stride_row.
// Traffic  reads and writes every element once as long as a row fits into the registers of
//          a block (16384 columns, 32768 of float32; 8192 in the backward, which holds two
//          rows) or, slice by slice, into the shared memory of one, on Hopper of eight
//          (450000 columns of float32 on an H200, half as many in the backward). Of a
//          longer row the rest is read twice.
// Limits   accumulates in float32. A row with NaN or +inf, or of -inf alone, is NaN.
// Mirror   triton_kernels/softmax/softmax.py differs in softmax_long_kernel and
//          softmax_backward_long_kernel, because Triton has neither shared memory to keep a
//          row in nor clusters to share one: it reads a long row again, out of a cache
//          that may still have it.
// Source   Milakov & Gimelshein 2018, arXiv:1805.02867 (algorithm 2; 3 for long rows)

#include "common/launch.cuh"
#include "common/rows.cuh"
#include "common/table.cuh"
#include "softmax/backward_first.cuh"
#include "softmax/backward_long.cuh"
#include "softmax/backward_twin.cuh"
#include "softmax/first.cuh"
#include "softmax/long.cuh"
#include "softmax/twin.cuh"

namespace {

// Rows in registers: longest row, elements a thread, threads a row, bytes of an element.
// Short rows take few threads, so that a block holds several; of long ones few threads have
// nothing. An element of two bytes takes as many registers as one of four, but half the
// shared memory, where the longest rows of those are faster.
constexpr RowTile TILES[] = {
    {64, 8, 8},      {128, 8, 16},     {256, 8, 32},     {512, 16, 32},
    {1024, 32, 32},  {2048, 16, 128},  {4096, 32, 128},  {6144, 32, 192},
    {8192, 32, 256}, {12288, 32, 384}, {16384, 32, 512}, {32768, 32, 1024, 4},
};

// Two rows at once: a thread holds half as much of each.
constexpr RowTile BACKWARD_TILES[] = {
    {64, 8, 8},      {128, 8, 16},    {256, 8, 32},    {512, 16, 32},   {1024, 8, 128},
    {2048, 16, 128}, {4096, 16, 256}, {6144, 16, 384}, {8192, 16, 512},
};

}  // namespace

// Vectors of 16 bytes where every row begins and ends at a multiple of them, else one
// element at a time.
cudaError_t softmax(
    const Launcher& launch, DType dtype, void* out, const void* x, int64_t n_rows,
    int64_t n_cols, int64_t rows_per_batch, int64_t x_stride_batch,
    int64_t x_stride_row, int rung
) {
    const bool vectors =
        have_vectors(dtype, {{out, n_cols}, {x, x_stride_row, x_stride_batch}});
    const auto start = [&](const auto& plan, auto... slice) {
        return launch(
            plan, out, x, n_rows, n_cols, rows_per_batch, x_stride_batch, x_stride_row,
            slice...
        );
    };
    return dispatch_vectors<cudaError_t>(dtype, vectors, [&]<typename T, int VEC_SIZE> {
        if (Rung{rung} == Rung::first) {
            return start(plan_first(softmax_first_kernel<T>, n_rows));
        }
        if (n_cols <= longest_row<T>(TILES)) {
            const auto plan = [&]<RowTile TILE> {
                constexpr int VECS = TILE.elements_per_thread / VEC_SIZE;
                constexpr int THREADS = TILE.threads_per_row;
                const auto kernel = softmax_kernel<T, VEC_SIZE, VECS, THREADS>;
                return plan_rows<TILE>(kernel, n_rows);
            };
            return start(choose_tile<T, TILES>(launch.device(), n_cols, plan));
        }
        if (Rung{rung} == Rung::twin) return cudaErrorNotSupported;
        const Slices slices = slices_of<VEC_SIZE>(launch.device(), n_cols, sizeof(T));
        const auto kernel = slices.n_blocks > 1
                                ? softmax_long_kernel<T, VEC_SIZE, true>
                                : softmax_long_kernel<T, VEC_SIZE, false>;
        return start(plan_slices(kernel, n_rows, slices), slices.size, slices.n_kept);
    });
}

cudaError_t softmax_backward(
    const Launcher& launch, DType dtype, void* out, const void* grad, const void* y,
    int64_t n_rows, int64_t n_cols, int64_t rows_per_batch, int64_t grad_stride_batch,
    int64_t grad_stride_row, int64_t y_stride_batch, int64_t y_stride_row, int rung
) {
    const bool vectors = have_vectors(
        dtype, {{out, n_cols},
                {grad, grad_stride_row, grad_stride_batch},
                {y, y_stride_row, y_stride_batch}}
    );
    const auto start = [&](const auto& plan, auto... slice) {
        return launch(
            plan, out, grad, y, n_rows, n_cols, rows_per_batch, grad_stride_batch,
            grad_stride_row, y_stride_batch, y_stride_row, slice...
        );
    };
    return dispatch_vectors<cudaError_t>(dtype, vectors, [&]<typename T, int VEC_SIZE> {
        if (Rung{rung} == Rung::first) {
            return start(plan_first(softmax_backward_first_kernel<T>, n_rows));
        }
        if (n_cols <= longest_row<T>(BACKWARD_TILES)) {
            const auto plan = [&]<RowTile TILE> {
                constexpr int VECS = TILE.elements_per_thread / VEC_SIZE;
                constexpr int THREADS = TILE.threads_per_row;
                const auto kernel = softmax_backward_kernel<T, VEC_SIZE, VECS, THREADS>;
                return plan_rows<TILE>(kernel, n_rows);
            };
            return start(choose_tile<T, BACKWARD_TILES>(launch.device(), n_cols, plan));
        }
        if (Rung{rung} == Rung::twin) return cudaErrorNotSupported;
        const Slices slices =
            slices_of<VEC_SIZE>(launch.device(), n_cols, 2 * sizeof(T));
        const auto kernel = slices.n_blocks > 1
                                ? softmax_backward_long_kernel<T, VEC_SIZE, true>
                                : softmax_backward_long_kernel<T, VEC_SIZE, false>;
        return start(plan_slices(kernel, n_rows, slices), slices.size, slices.n_kept);
    });
}

// Cross entropy of every row of a matrix of logits and the class that it should name.
//
//   loss[row] = logsumexp(x) - (1 - s) * x[target[row]] - s * mean(x)
//   grad_logits[row, :] = grad * (exp(x - logsumexp(x)) - (1 - s) * one_hot - s / n_cols)
//   x = logits[row, :], s = label_smoothing, one_hot[col] = (col == target[row])
//
// Layout   logits: columns contiguous; row r begins at (r / rows_per_batch) * stride_batch
//          + (r % rows_per_batch) * stride_row. All else is contiguous; grad has a stride,
//          which is 0 where there is one for all rows.
// Traffic  forward reads every logit once, however long the row; backward reads and
//          writes it once. A row that does not count is not read, but for the forward's
//          first tile. The ceilings are the bandwidths of a read and of a copy.
// Limits   accumulates in float32. A row with NaN or +inf, or of -inf alone, is NaN, and
//          so is one whose target is no class. The gradient is as exact as float32 holds
//          the logsumexp: to 2^-24 of it. Rows are added up in an order that depends on
//          their number and length alone.
// Mirror   triton_kernels/cross_entropy/cross_entropy.py
// Source   Milakov & Gimelshein 2018, arXiv:1805.02867 (algorithm 3); label smoothing:
//          Szegedy et al. 2015, arXiv:1512.00567

#include "common/launch.cuh"
#include "common/table.cuh"
#include "cross_entropy/backward_first.cuh"
#include "cross_entropy/backward_twin.cuh"
#include "cross_entropy/first.cuh"
#include "cross_entropy/reduce.cuh"
#include "cross_entropy/twin.cuh"

namespace {

// The longest row, what a thread holds of it, threads of a row, bytes of an element; the
// first two are counted in vectors of 16 bytes. Short rows take few threads, in threes as
// well as in fours, so that few of them are past its end; a long row is several tiles. The
// last blocks have the GPU for themselves: more threads are sooner through.
constexpr RowTile TILES[] = {
    {8, 2, 4},         {12, 3, 4},         {16, 4, 4},         {24, 3, 8},
    {32, 4, 8},        {48, 3, 16},        {64, 4, 16},        {96, 3, 32},
    {256, 4, 32},      {384, 3, 128},      {512, 4, 128},      {768, 4, 192},
    {8192, 4, 256},    {16384, 4, 256, 4}, {16384, 4, 512, 2}, {LONGEST, 4, 1024, 2},
    {LONGEST, 4, 512},
};

// What a thread has to find out of its row is worth 64 bytes of two-byte elements, which
// were 13 % faster than 32 on an H200; of float32 they were 3 % slower.
constexpr RowTile BACKWARD_TILES[] = {
    {8, 2, 4, 2},         {12, 3, 4, 2},     {16, 4, 4, 2},   {16, 2, 8, 4},
    {24, 3, 8},           {32, 4, 8, 2},     {32, 2, 16, 4},  {48, 3, 16},
    {64, 4, 16, 2},       {64, 2, 32, 4},    {96, 3, 32},     {128, 4, 32, 2},
    {128, 2, 64, 4},      {192, 3, 64},      {256, 4, 64, 2}, {384, 3, 128, 2},
    {LONGEST, 4, 128, 2}, {LONGEST, 2, 128},
};

// Columns of a vector. Where a thread reads one by one, it reads as many in its place.
template <typename T>
constexpr int COLS_PER_VEC = VEC_BYTES / sizeof(T);

}  // namespace

// Vectors of 16 bytes where every row begins and ends at a multiple of them, else one
// element at a time. Where the losses are added up, a second launch does that: `partial`
// has a place for each row, so for as many blocks as a table may choose.
cudaError_t cross_entropy(
    const Launcher& launch, DType dtype, void* loss, void* logsumexp, void* n_counted,
    void* partial, const void* logits, const void* target, int64_t n_rows,
    int64_t n_cols, int64_t rows_per_batch, int64_t logits_stride_batch,
    int64_t logits_stride_row, int64_t ignore_index, float label_smoothing, bool mean,
    int rung
) {
    const bool vectors = have_vectors(
        dtype, {{logits, n_cols}, {logits, logits_stride_row, logits_stride_batch}}
    );
    return dispatch_vectors<cudaError_t>(dtype, vectors, [&]<typename T, int VEC_SIZE> {
        const auto plan_tile = [&]<RowTile TILE> {
            constexpr int VECS = TILE.elements_per_thread * COLS_PER_VEC<T> / VEC_SIZE;
            constexpr int THREADS = TILE.threads_per_row;
            return plan_rows<TILE>(
                label_smoothing != 0.0f
                    ? cross_entropy_kernel<T, VEC_SIZE, VECS, THREADS, true>
                    : cross_entropy_kernel<T, VEC_SIZE, VECS, THREADS, false>,
                n_rows
            );
        };
        const int64_t n_vecs = ceil_div(n_cols, COLS_PER_VEC<T>);
        const auto plan =
            Rung{rung} == Rung::first
                ? plan_first(cross_entropy_first_kernel<T>, n_rows)
                : choose_tile<T, TILES>(launch.device(), n_vecs, plan_tile);
        const int64_t n_blocks = plan.grid.x;
        if (n_blocks > 0) {
            const cudaError_t error = launch(
                plan, logsumexp, partial ? nullptr : loss, partial, logits, target,
                n_rows, n_cols, rows_per_batch, logits_stride_batch, logits_stride_row,
                ignore_index, label_smoothing, 1.0f / n_cols
            );
            if (error != cudaSuccess || !partial) return error;
        }
        return launch(
            Plan{cross_entropy_reduce_kernel<T>, dim3(1), dim3(REDUCE_NUM_THREADS)},
            loss, n_counted, partial, n_blocks, mean
        );
    });
}

cudaError_t cross_entropy_backward(
    const Launcher& launch, DType dtype, void* out, const void* grad,
    const void* logits, const void* target, const void* logsumexp,
    const void* n_counted, int64_t n_rows, int64_t n_cols, int64_t grad_stride,
    int64_t rows_per_batch, int64_t logits_stride_batch, int64_t logits_stride_row,
    int64_t ignore_index, float label_smoothing, int rung
) {
    const bool vectors = have_vectors(
        dtype, {{out, n_cols}, {logits, logits_stride_row, logits_stride_batch}}
    );
    return dispatch_vectors<cudaError_t>(dtype, vectors, [&]<typename T, int VEC_SIZE> {
        const auto plan_tile = [&]<RowTile TILE> {
            constexpr int VECS = TILE.elements_per_thread * COLS_PER_VEC<T> / VEC_SIZE;
            constexpr int BLOCK_M = BACKWARD_NUM_THREADS / TILE.threads_per_row;
            constexpr int BLOCK_N = TILE.threads_per_row * VECS * VEC_SIZE;
            return Plan{
                cross_entropy_backward_kernel<T, VEC_SIZE, VECS, TILE.threads_per_row>,
                dim3(ceil_div(n_rows, BLOCK_M) * ceil_div(n_cols, BLOCK_N)),
                dim3(BACKWARD_NUM_THREADS)
            };
        };
        const int64_t n_vecs = ceil_div(n_cols, COLS_PER_VEC<T>);
        return launch(
            Rung{rung} == Rung::first
                ? plan_first(cross_entropy_backward_first_kernel<T>, n_rows)
                : choose_tile<T, BACKWARD_TILES>(launch.device(), n_vecs, plan_tile),
            out, grad, logits, target, logsumexp, n_counted, n_rows, n_cols,
            grad_stride, rows_per_batch, logits_stride_batch, logits_stride_row,
            ignore_index, label_smoothing, 1.0f / n_cols
        );
    });
}

// Sums over one dimension of a tensor.
//
//   out[o, i] = sum over r of x[o, r, i]
//
// Layout   out: (n_outer, n_inner), contiguous. x: (n_outer, n_reduced, n_inner) with any
//          three strides. workspace: float32, n_splits for each element of out.
// Traffic  reads every element once and writes next to nothing: the ceiling is the
//          bandwidth of a read.
// Limits   accumulates in float32 and rounds once. The order of the additions depends on
//          shape, strides and alignment alone, so every run gives the same bits.
// Mirror   triton_kernels/sum/sum.py
// Source   Harris 2007, "Optimizing parallel reduction in CUDA"

#include "common/launch.cuh"
#include "common/table.cuh"
#include "sum/first.cuh"
#include "sum/rows.cuh"
#include "sum/twin.cuh"

namespace {

// What one launch adds up: in n_splits parts of the reduced dimension.
struct Walk {
    int64_t n_outer, n_reduced, n_inner;
    int64_t stride_outer, stride_reduced, stride_inner;
    int64_t n_splits, split_size;
};

// The longest row, what a thread reads of it at a time, threads of a row; the first two are
// counted in vectors. Short rows share a block, and the shortest ones a thread. A row that
// takes few steps takes fewer of twice the size: much of the last one may be idle.
constexpr RowTile ROW_TILES[] = {
    {8, 1, 8},    {16, 2, 8},     {32, 2, 16},    {64, 4, 16},
    {512, 4, 32}, {1024, 4, 256}, {4096, 8, 256}, {LONGEST, 4, 256},
};

// A block reads so much of a row of columns at a time: less where fewer blocks would be
// left than keep a GPU busy, a number that is the same on every GPU, as the order of the
// additions depends on it; more where there are too few rows for the other threads.
constexpr int LEAST_BYTES = 32, MOST_BYTES = 1024;
constexpr int FEWEST_BLOCKS = 128, FEWEST_SINGLES_BLOCKS = 384, FEWEST_ROWS = 4;

template <typename In, typename Out, int VEC_SIZE, bool BY_ROWS>
auto plan_sums(const Device& device, const Walk& walk) {
    const int64_t n_added = min(walk.n_reduced, walk.split_size);  // to each sum
    if constexpr (BY_ROWS) {
        const auto plan = [&]<RowTile TILE> {
            constexpr int THREADS = TILE.threads_per_row;
            constexpr int LOADS = TILE.elements_per_thread;
            constexpr int ROWS = THREADS >= WARP_SIZE ? 1 : LOADS > 2 ? 2 : 4;
            const int64_t n_rows = walk.n_outer * walk.n_inner;
            return Plan{
                sum_rows_kernel<In, Out, VEC_SIZE, THREADS, ROWS, LOADS>,
                dim3(ceil_div(n_rows, NUM_THREADS / THREADS * ROWS), walk.n_splits),
                dim3(NUM_THREADS)
            };
        };
        return choose_tile<In, ROW_TILES>(device, ceil_div(n_added, VEC_SIZE), plan);
    } else {
        constexpr int BYTES = VEC_SIZE * sizeof(In);
        const bool are_singles = BYTES == 2 && walk.n_splits == 1;
        const int fewest_blocks = are_singles ? FEWEST_SINGLES_BLOCKS : FEWEST_BLOCKS;
        const auto n_blocks = [&](int n_threads) {
            return walk.n_outer * ceil_div(walk.n_inner, n_threads * VEC_SIZE);
        };
        int n_threads = LEAST_BYTES / BYTES;  // that share a row
        while (n_threads < NUM_THREADS && n_threads * VEC_SIZE < walk.n_inner &&
               n_blocks(2 * n_threads) * walk.n_splits >= fewest_blocks &&
               (n_threads * BYTES < MOST_BYTES ||
                n_threads * n_added < FEWEST_ROWS * NUM_THREADS)) {
            n_threads *= 2;
        }
        return Plan{
            sum_kernel<In, Out, VEC_SIZE>, dim3(n_blocks(n_threads), walk.n_splits),
            dim3(n_threads, NUM_THREADS / n_threads)
        };
    }
}

// Vectors of 16 bytes along rows without gaps; of columns, where every row begins at a
// multiple of them. Else one element at a time.
template <typename In, typename Out, bool BY_ROWS>
cudaError_t launch_sums(
    const Launcher& launch, void* out, const void* x, const Walk& walk
) {
    constexpr int VEC_SIZE = VEC_BYTES / sizeof(In);
    const bool vectors = BY_ROWS
                             ? walk.stride_reduced == 1
                             : walk.stride_inner == 1 && walk.n_inner % VEC_SIZE == 0 &&
                                   has_vectors<In>(x, walk.stride_reduced, 1) &&
                                   has_vectors<In>(x, walk.stride_outer, 1);
    return launch(
        vectors ? plan_sums<In, Out, VEC_SIZE, BY_ROWS>(launch.device(), walk)
                : plan_sums<In, Out, 1, BY_ROWS>(launch.device(), walk),
        out, x, walk.n_outer, walk.n_reduced, walk.n_inner, walk.stride_outer,
        walk.stride_reduced, walk.stride_inner, walk.split_size
    );
}

}  // namespace

// Where there are too few outputs to fill a GPU, n_splits blocks share each of them: they
// leave their sums in the workspace, and a second launch adds those, as columns.
cudaError_t sum(
    const Launcher& launch, DType dtype, void* out, const void* x, void* workspace,
    int64_t n_outer, int64_t n_reduced, int64_t n_inner, int64_t x_stride_outer,
    int64_t x_stride_reduced, int64_t x_stride_inner, bool by_rows, int64_t n_splits,
    int64_t split_size, int rung
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T> {
        const int64_t n_outputs = n_outer * n_inner;
        if (Rung{rung} == Rung::first) {
            return launch(
                plan_first(sum_first_kernel<T>, n_outputs), out, x, n_reduced, n_inner,
                x_stride_outer, x_stride_reduced, x_stride_inner
            );
        }
        const Walk walk{n_outer,          n_reduced,      n_inner,  x_stride_outer,
                        x_stride_reduced, x_stride_inner, n_splits, split_size};
        if (n_splits == 1) {
            const auto add =
                by_rows ? launch_sums<T, T, true> : launch_sums<T, T, false>;
            return add(launch, out, x, walk);
        }
        const auto add =
            by_rows ? launch_sums<T, float, true> : launch_sums<T, float, false>;
        const cudaError_t error = add(launch, workspace, x, walk);
        if (error != cudaSuccess) return error;
        const Walk partial{1, n_splits, n_outputs, 0, n_outputs, 1, 1, n_splits};
        return launch_sums<float, T, false>(launch, out, workspace, partial);
    });
}

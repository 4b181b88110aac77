// How rows of both norms' backward are cut up, and the launches that it takes.
#pragma once

#include "common/launch.cuh"
#include "common/table.cuh"
#include "norm/backward_cluster.cuh"
#include "norm/backward_long.cuh"
#include "norm/backward_twin.cuh"
#include "norm/backward_weights_first.cuh"
#include "norm/sum_partials.cuh"

// Rows of grad and x in registers: longest row, elements a thread, threads a row, bytes
// of an element. A block has as many rows as fill it.
constexpr RowTile BACKWARD_TILES[] = {
    {64, 8, 8, 4},      {64, 16, 4, 2},     {128, 8, 16, 4},    {128, 16, 8, 2},
    {256, 8, 32, 4},    {256, 16, 16, 2},   {512, 8, 64, 4},    {512, 16, 32, 2},
    {1024, 8, 128, 4},  {1024, 16, 64, 2},  {2048, 8, 256, 4},  {2048, 16, 128, 2},
    {4096, 8, 512, 4},  {4096, 16, 256, 2}, {5120, 16, 320, 2}, {6144, 16, 384, 2},
    {8192, 16, 512, 2},
};

// Slices of longer rows, one for each block of a cluster.
constexpr RowTile SLICE_TILES[] = {
    {4096, 16, 256, 4},
    {6144, 16, 384},
    {8192, 16, 512},
};

// How many blocks share a row, 0 where no cluster can: cp.async has no 2-byte form.
template <typename T, int VEC_SIZE>
int cluster_size(const Device& device, int64_t n_cols) {
    constexpr RowTile LARGEST = SLICE_TILES[std::size(SLICE_TILES) - 1];
    constexpr int VECS = LARGEST.elements_per_thread / VEC_SIZE;
    using Shared = ClusterShared<T, VEC_SIZE, VECS, LARGEST.threads_per_row, true>;
    if (VEC_SIZE * sizeof(T) < 4 || device.arch < 90) return 0;
    if (int64_t{sizeof(Shared)} > device.max_shared_bytes) return 0;
    int n_blocks = 2;
    while (n_blocks * LARGEST.max_cols < n_cols) n_blocks *= 2;
    return n_blocks <= MAX_CLUSTER_SIZE ? n_blocks : 0;
}

// A column has as many threads as there are partial sums, but few enough that 32
// columns, which a warp reads as one line of 128 bytes, share a block.
template <typename T>
auto plan_sum_partials(int64_t n_sums, int64_t n_partials, int64_t n_cols) {
    int block_m = 1;
    while (block_m < n_partials && block_m < 32) block_m *= 2;
    const int block_n = block_m < 8 ? 256 / block_m : 32;
    return Plan{
        norm_sum_partials_kernel<T>, dim3(ceil_div(n_cols, block_n), n_sums),
        dim3(block_n, block_m)
    };
}

// Launches what the tables choose, in vectors where every row begins and ends at a
// multiple of 16 bytes: two kernels, or three for the longest rows. `start_first`
// starts the norm's own kernel of the first rung.
template <bool HAS_MEAN, typename StartFirst>
cudaError_t launch_norm_backward(
    const Launcher& launch, DType dtype, void* grad_x, void* grad_weight,
    void* grad_bias, void* partials, void* row_means, const void* grad, const void* x,
    const void* mean, const void* rstd, const void* weight, int64_t n_rows,
    int64_t n_cols, int64_t n_partials, int64_t rows_per_batch,
    int64_t grad_stride_batch, int64_t grad_stride_row, int64_t x_stride_batch,
    int64_t x_stride_row, int rung, StartFirst&& start_first
) {
    const Device& device = launch.device();
    const auto start = [&](const auto& plan, auto... outputs_and_inputs) {
        return launch(
            plan, outputs_and_inputs..., n_rows, n_cols, rows_per_batch,
            grad_stride_batch, grad_stride_row, x_stride_batch, x_stride_row
        );
    };
    const bool vectors = have_vectors(
        dtype, {{grad_x, n_cols},
                {grad, grad_stride_row, grad_stride_batch},
                {x, x_stride_row, x_stride_batch},
                {weight, 0}}
    );
    return dispatch_vectors<cudaError_t>(dtype, vectors, [&]<typename T, int VEC_SIZE> {
        cudaError_t error = cudaSuccess;
        if (Rung{rung} == Rung::first) {
            if (n_rows > 0) error = start_first.template operator()<T>(start);
            if (error != cudaSuccess) return error;
            const auto kernel = norm_backward_weights_first_kernel<T>;
            const auto plan = plan_first(kernel, ceil_div(n_cols, FIRST_NUM_THREADS));
            return start(plan, grad_weight, grad_bias, grad, x, mean, rstd);
        }
        const auto in_registers = [&]<RowTile TILE> {
            constexpr int VECS = TILE.elements_per_thread / VEC_SIZE;
            constexpr int THREADS_PER_ROW = TILE.threads_per_row;
            using Shared = BackwardShared<T, VEC_SIZE, VECS, THREADS_PER_ROW, HAS_MEAN>;
            const Plan plan{
                norm_backward_kernel<T, VEC_SIZE, VECS, THREADS_PER_ROW, HAS_MEAN>,
                dim3(n_partials), dim3(Shared::NUM_THREADS), sizeof(Shared)
            };
            return start(plan, grad_x, partials, grad, x, mean, rstd, weight);
        };
        const int n_blocks = cluster_size<T, VEC_SIZE>(device, n_cols);
        const auto in_slices = [&]<RowTile TILE> {
            constexpr int VECS = TILE.elements_per_thread / VEC_SIZE;
            constexpr int NUM_THREADS = TILE.threads_per_row;
            using Shared = ClusterShared<T, VEC_SIZE, VECS, NUM_THREADS, HAS_MEAN>;
            // Multiprocessors come in pairs; larger clusters lie within groups of up to
            // 18, each of which leaves some over: on an H200 they find room on 120.
            const int n_sms = device.n_sms - (n_blocks == 2 ? 0 : device.n_sms / 11);
            const int64_t most = n_sms * (512 / NUM_THREADS) / n_blocks;
            if (n_partials > most) n_partials = most;
            const Plan plan{
                norm_backward_cluster_kernel<T, VEC_SIZE, VECS, NUM_THREADS, HAS_MEAN>,
                dim3(n_partials, n_blocks), dim3(NUM_THREADS), sizeof(Shared),
                dim3(1, n_blocks)
            };
            return start(plan, grad_x, partials, grad, x, mean, rstd, weight);
        };
        if (n_cols <= longest_row<T>(BACKWARD_TILES)) {
            error = choose_tile<T, BACKWARD_TILES>(device, n_cols, in_registers);
        } else if (Rung{rung} == Rung::twin) {
            error = cudaErrorNotSupported;
        } else if (n_blocks > 0) {
            if constexpr (VEC_SIZE * sizeof(T) >= 4) {
                const int64_t n_owned = ceil_div(n_cols, n_blocks);
                error = choose_tile<T, SLICE_TILES>(device, n_owned, in_slices);
            }
        } else {
            const Plan rows{
                norm_backward_rows_kernel<T, VEC_SIZE, HAS_MEAN>, dim3(n_rows),
                dim3(ROWS_NUM_THREADS)
            };
            const Plan columns{
                norm_backward_columns_kernel<T, VEC_SIZE, HAS_MEAN>,
                dim3(ceil_div(n_cols, COLUMNS_BLOCK_N<VEC_SIZE>), n_partials),
                dim3(COLUMNS_NUM_THREADS)
            };
            if (n_rows > 0) error = start(rows, row_means, grad, x, mean, rstd, weight);
            if (error == cudaSuccess) {
                error = start(
                    columns, grad_x, partials, row_means, grad, x, mean, rstd, weight
                );
            }
        }
        if (error != cudaSuccess) return error;
        const auto last = plan_sum_partials<T>(NUM_SUMS<HAS_MEAN>, n_partials, n_cols);
        return launch(last, grad_weight, grad_bias, partials, n_partials, n_cols);
    });
}

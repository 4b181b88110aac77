// The launches of matmul's last two rungs, and sums of parts.
#pragma once

#include "common/launch.cuh"
#include "common/table.cuh"
#include "common/tensor_map.cuh"
#include "matmul/copies.cuh"
#include "matmul/parts.cuh"
#include "matmul/tables.cuh"
#include "matmul/tensor_cores.cuh"
#include "matmul/tf32_twin.cuh"
#include "matmul/twin.cuh"

// Adds the parts that a launch has left.
template <typename T>
cudaError_t launch_sum(
    const Launcher& launch, const Product& product, int block_m, int block_n,
    int64_t n_steps
) {
    const Cut& cut = product.cut;
    if (cut.n_streamed == 0) return cudaSuccess;
    const auto start = [&]<int NUM_GROUPS>() {
        constexpr int BLOCK_SIZE = parts::NUM_THREADS / NUM_GROUPS * parts::VEC_SIZE;
        return launch(
            Plan{
                .kernel = matmul_sum_kernel<T, NUM_GROUPS>,
                .grid = dim3(block_m * block_n / BLOCK_SIZE, product.cut.n_streamed),
                .block = dim3(parts::NUM_THREADS),
                .is_dependent = true
            },
            product.out_ptr, product.parts, product.bias, product.call.M,
            product.call.N, block_m, block_n, product.cut.n_streamed, n_steps,
            product.cut.n_blocks, product.activation
        );
    };
    const bool has_few = ceil_div(cut.n_blocks, cut.n_streamed) <= 3;
    return has_few ? start.template operator()<1>() : start.template operator()<8>();
}

// A map by which boxes of so many rows are copied. Planes follow each other as batches do.
template <typename T>
TensorMap map_of(const Matrix& x, int64_t n_batches, int box_rows) {
    const int64_t stride_batch =
        x.n_planes == 1 ? x.stride_batch : x.n_rows * x.stride_row;
    return make_tensor_map<T>(
        x.ptr, x.n_planes * x.n_matrices(n_batches), x.n_rows, x.n_cols, stride_batch,
        x.stride_row, box_rows
    );
}

// Makes the maps' opaque parts. Rows of out that are not aligned are stored without a map.
template <typename Out, typename Left, typename Right>
cudaError_t encode_maps(
    const Launcher& launch, const Call& call, TensorMap& out, TensorMap& left,
    TensorMap& right
) {
    if (launch.describes()) return cudaSuccess;
    if (call.out_is_aligned) {
        if (const cudaError_t error = encode_tensor_map<Out>(&out)) return error;
    }
    if (const cudaError_t error = encode_tensor_map<Left>(&left)) return error;
    return encode_tensor_map<Right>(&right);
}

template <typename T, MatmulTile TILE, ptx::Major A_MAJOR, ptx::Major B_MAJOR>
constexpr auto TWIN =
    matmul_kernel<T, TILE.block_m, TILE.block_n, TILE.num_stages, A_MAJOR, B_MAJOR>;

template <typename T>
cudaError_t launch_twin(const Launcher& launch, const Product& product) {
    using namespace twin;
    const Call& call = product.call;
    const Matrix &a = product.a, &b = product.b;
    TensorMap out_map = map_of<T>(product.out, call.n_batches, BOX_SIZE);
    const MatmulTile& tile = TILES[product.cut.tile];
    const int cluster_rows = tile.cluster_rows, cluster_cols = tile.cluster_cols;
    constexpr auto ALONG_K = ptx::Major::K, ACROSS_K = ptx::Major::MN;
    const auto a_major = a.along_k ? ALONG_K : ACROSS_K;
    const auto b_major = b.along_k ? ALONG_K : ACROSS_K;
    const Copies a_copies = copies_of(a_major, call.M, tile.block_m, cluster_cols);
    const Copies b_copies = copies_of(b_major, call.N, tile.block_n, cluster_rows);
    TensorMap a_map = map_of<T>(a, call.n_batches, a_copies.n_rows);
    TensorMap b_map = map_of<T>(b, call.n_batches, b_copies.n_rows);
    const cudaError_t error = encode_maps<T, T, T>(launch, call, out_map, a_map, b_map);
    if (error != cudaSuccess) return error;
    const auto start = [&]<MatmulTile TILE>() {
        constexpr int BLOCK_M = TILE.block_m, BLOCK_N = TILE.block_n;
        const auto kernel = a.along_k && b.along_k ? TWIN<T, TILE, ALONG_K, ALONG_K>
                            : a.along_k            ? TWIN<T, TILE, ALONG_K, ACROSS_K>
                            : b.along_k            ? TWIN<T, TILE, ACROSS_K, ALONG_K>
                                                   : TWIN<T, TILE, ACROSS_K, ACROSS_K>;
        const cudaError_t error = launch(
            Plan{
                .kernel = kernel,
                .grid = dim3(product.cut.n_blocks * tile.cluster_size()),
                .block = dim3(NUM_THREADS<BLOCK_M>),
                .shared_bytes = sizeof(Shared<BLOCK_M, BLOCK_N, TILE.num_stages>),
                .cluster = dim3(tile.cluster_size()),
                .is_dependent = product.begins_early
            },
            out_map, a_map, b_map, product.bias, product.parts,
            call.out_is_aligned ? nullptr : product.out_ptr, call.n_batches, call.M,
            call.N, call.K, a.stride_batch == 0, b.stride_batch == 0,
            product.activation, product.cut.n_streamed, cluster_rows, cluster_cols
        );
        if (error != cudaSuccess) return error;
        const int64_t n_steps = ceil_div(call.K, BLOCK_K);
        return launch_sum<T>(
            launch, product, tile.cluster_m(), tile.cluster_n(), n_steps
        );
    };
    return choose_tile<T, TILES>(launch.device(), tile, start);
}

template <MatmulTile TILE, int NUM_PLANES, ptx::Major LEFT_MAJOR>
constexpr auto TF32_TWIN = matmul_tf32_kernel<
    TILE.block_m, TILE.block_n, TILE.num_stages, NUM_PLANES, LEFT_MAJOR>;

// Of float32, whose right operand has so many planes.
template <int NUM_PLANES, const auto& TABLE>
cudaError_t launch_tf32_twin(const Launcher& launch, const Product& product) {
    using namespace twin;
    using Left = std::conditional_t<NUM_PLANES == 1, Tf32, float>;
    const Call& call = product.call;
    const bool b_is_left = product.b_is_left;
    const Matrix& left = b_is_left ? product.b : product.a;
    const Matrix& right = b_is_left ? product.a : product.b;
    const int left_rows = left.along_k ? BOX_SIZE : BOX_COLS;
    TensorMap out_map = map_of<float>(product.out, call.n_batches, BOX_SIZE);
    TensorMap left_map = map_of<Left>(left, call.n_batches, left_rows);
    TensorMap right_map = map_of<Tf32>(right, call.n_batches, BOX_SIZE);
    const cudaError_t error =
        encode_maps<float, Left, Tf32>(launch, call, out_map, left_map, right_map);
    if (error != cudaSuccess) return error;
    const auto start = [&]<MatmulTile TILE>() {
        constexpr int BLOCK_M = TILE.block_m, BLOCK_N = TILE.block_n;
        const auto kernel = left.along_k ? TF32_TWIN<TILE, NUM_PLANES, ptx::Major::K>
                                         : TF32_TWIN<TILE, NUM_PLANES, ptx::Major::MN>;
        const cudaError_t error = launch(
            Plan{
                .kernel = kernel,
                .grid = dim3(product.cut.n_blocks),
                .block = dim3(NUM_THREADS<BLOCK_M>),
                .shared_bytes =
                    sizeof(Tf32Shared<BLOCK_M, BLOCK_N, TILE.num_stages, NUM_PLANES>),
                .is_dependent = product.begins_early
            },
            out_map, left_map, right_map, product.bias, product.parts,
            call.out_is_aligned ? nullptr : product.out_ptr, call.n_batches, call.M,
            call.N, call.K, left.stride_batch == 0, right.stride_batch == 0, b_is_left,
            product.activation, product.cut.n_streamed
        );
        if (error != cudaSuccess) return error;
        const int64_t n_steps = ceil_div(call.K, TF32_BLOCK_K);
        const int out_block_m = b_is_left ? BLOCK_N : BLOCK_M;
        const int out_block_n = b_is_left ? BLOCK_M : BLOCK_N;
        return launch_sum<float>(launch, product, out_block_m, out_block_n, n_steps);
    };
    return choose_tile<float, TABLE>(launch.device(), TABLE[product.cut.tile], start);
}

template <typename T, RungTile TILE>
constexpr int STEP = TILE.block_k * 2 / int{sizeof(T)};  // elements of k
template <
    typename T, RungTile TILE, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS, bool HAS_WORDS>
constexpr auto TENSOR_CORES = matmul_tensor_cores_kernel<
    T, TILE.block_m, TILE.block_n, STEP<T, TILE>, TILE.warps_m, TILE.warps_n,
    TILE.num_stages, A_K_CONTIGUOUS, B_K_CONTIGUOUS, HAS_WORDS>;

template <typename T>
cudaError_t launch_tensor_cores(const Launcher& launch, const Product& product) {
    const auto start = [&]<RungTile TILE>() {
        constexpr int BLOCK_M = TILE.block_m, BLOCK_N = TILE.block_n;
        constexpr int BLOCK_K = STEP<T, TILE>, NUM_STAGES = TILE.num_stages;
        const Matrix &a = product.a, &b = product.b;
        const Call& call = product.call;
        const Cut& cut = product.cut;
        const auto kernel_for = [&]<bool HAS_WORDS>() {
            constexpr auto W = HAS_WORDS;
            return a.along_k && b.along_k ? TENSOR_CORES<T, TILE, true, true, W>
                   : a.along_k            ? TENSOR_CORES<T, TILE, true, false, W>
                   : b.along_k            ? TENSOR_CORES<T, TILE, false, true, W>
                                          : TENSOR_CORES<T, TILE, false, false, W>;
        };
        // Elements of float32 are words.
        const bool has_words =
            sizeof(T) == 4 || (a.has_words(call.dtype) && b.has_words(call.dtype));
        const auto kernel = has_words
                                ? kernel_for.template operator()<true>()
                                : kernel_for.template operator()<sizeof(T) == 4>();
        const int64_t n_parts = cut.n_streamed == 0 ? 1 : cut.n_blocks / cut.n_streamed;
        const int64_t n_steps = TILE.steps_of_part(call, n_parts);
        using Shared = tensor_cores::Shared<T, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES>;
        // No more blocks than multiprocessors take more than half of the shared memory
        // each, so that two of the same or of two launches are never on one.
        const Device& device = launch.device();
        const bool is_alone = device.arch >= 90 && cut.n_blocks <= device.n_sms;
        const int64_t over_half = device.max_shared_bytes / 2 + 1;
        const cudaError_t error = launch(
            Plan{
                .kernel = kernel,
                .grid = dim3(cut.n_blocks),
                .block = dim3(TILE.warps_m * TILE.warps_n * WARP_SIZE),
                .shared_bytes =
                    model::most(Shared::bytes(n_steps), is_alone ? over_half : 0),
                .is_dependent = product.begins_early
            },
            product.out_ptr, a.ptr, b.ptr, product.bias, product.parts, call.M, call.N,
            call.K, a.stride_batch, a.stride_row, b.stride_batch, b.stride_row,
            a.is_padded, b.is_padded, product.activation, n_parts, n_steps, is_alone
        );
        if (error != cudaSuccess) return error;
        return launch_sum<T>(launch, product, BLOCK_M, BLOCK_N, n_parts * n_steps);
    };
    const RungTile& tile = TENSOR_CORES_TILES[product.cut.tile];
    return choose_tile<T, TENSOR_CORES_TILES>(launch.device(), tile, start);
}

// The launches of matmul's last two rungs: copies of operands, the product, sums of parts.
#pragma once

#include "common/launch.cuh"
#include "common/table.cuh"
#include "common/tensor_map.cuh"
#include "matmul/align.cuh"
#include "matmul/parts.cuh"
#include "matmul/tables.cuh"
#include "matmul/tensor_cores.cuh"
#include "matmul/twin.cuh"

// A matrix as it lies in memory, whatever its rows are in the product.
struct Matrix {
    const void* ptr;
    int64_t n_rows, n_cols;
    int64_t stride_batch, stride_row;
    bool is_padded;  // rows may be read to the end of a vector

    bool is_aligned(DType dtype) const {
        return have_vectors(dtype, {{ptr, stride_row, stride_batch}});
    }
    int64_t n_matrices(int64_t n_batches) const {
        return stride_batch == 0 ? 1 : n_batches;
    }
    int64_t n_copied(DType dtype, int64_t n_batches) const {
        return is_aligned(dtype) ? 0 : n_matrices(n_batches) * n_rows * n_cols;
    }
    // Of itself, or of its copy.
    bool has_lines(DType dtype) const {
        const int64_t stride =
            is_aligned(dtype) ? stride_row : align::stride_of(n_cols);
        return stride % model::LINE_SIZE == 0;
    }
};

// What the launches are of.
struct Product {
    Call call;
    Cut cut;
    Matrix out, a, b;
    bool a_along_k, b_along_k;
    void* out_ptr;  // of out, to write to
    const void* bias;
    void* parts;
    int activation;
};

// Copies the operands that are not aligned, one behind the other.
template <typename T>
cudaError_t launch_copies(const Launcher& launch, Product& product, void* copies) {
    T* copy = static_cast<T*>(copies);
    for (Matrix* x : {&product.a, &product.b}) {
        if (x->is_aligned(product.call.dtype)) continue;
        const int64_t stride = align::stride_of(x->n_cols);
        const int64_t n_matrices = x->n_matrices(product.call.n_batches);
        const int64_t n_blocks = ceil_div(x->n_rows, align::ROWS_PER_BLOCK) *
                                 ceil_div(x->n_cols, align::COLS_PER_BLOCK);
        const dim3 grid(n_blocks * n_matrices);
        const cudaError_t error = launch(
            Plan{matmul_align_kernel<T>, grid, dim3(align::NUM_THREADS)}, copy, x->ptr,
            x->n_rows, x->n_cols, x->stride_batch, x->stride_row, stride
        );
        if (error != cudaSuccess) return error;
        x->ptr = copy;
        x->stride_row = stride;
        if (x->stride_batch != 0) x->stride_batch = x->n_rows * stride;
        x->is_padded = true;
        copy += n_matrices * x->n_rows * stride;
    }
    return cudaSuccess;
}

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
                matmul_sum_kernel<T, NUM_GROUPS>,
                dim3(block_m * block_n / BLOCK_SIZE, product.cut.n_streamed),
                dim3(parts::NUM_THREADS)
            },
            product.out_ptr, product.parts, product.bias, product.call.M,
            product.call.N, block_m, block_n, product.cut.n_streamed, n_steps,
            product.cut.n_blocks, product.activation
        );
    };
    const bool has_few = ceil_div(cut.n_blocks, cut.n_streamed) <= 3;
    return has_few ? start.template operator()<1>() : start.template operator()<8>();
}

template <typename T, MatmulTile TILE, ptx::Major A_MAJOR, ptx::Major B_MAJOR>
constexpr auto TWIN =
    matmul_kernel<T, TILE.block_m, TILE.block_n, TILE.num_stages, A_MAJOR, B_MAJOR>;

template <typename T>
cudaError_t launch_twin(const Launcher& launch, const Product& product) {
    using namespace twin;
    const Call& call = product.call;
    const auto map_of = [&](const Matrix& x) {
        return make_tensor_map<T>(
            x.ptr, x.n_matrices(call.n_batches), x.n_rows, x.n_cols, x.stride_batch,
            x.stride_row, BOX_SIZE
        );
    };
    // Rows of out that are not aligned are stored without a map.
    TensorMap out_map = map_of(product.out);
    TensorMap a_map = map_of(product.a), b_map = map_of(product.b);
    for (TensorMap* map : {&out_map, &a_map, &b_map}) {
        const bool is_used = map != &out_map || call.out_is_aligned;
        if (launch.describes() || !is_used) continue;
        if (const cudaError_t error = encode_tensor_map<T>(map)) return error;
    }
    const auto start = [&]<MatmulTile TILE>() {
        constexpr int BLOCK_M = TILE.block_m, BLOCK_N = TILE.block_n;
        constexpr auto ALONG_K = ptx::Major::K, ACROSS_K = ptx::Major::MN;
        const auto kernel = product.a_along_k && product.b_along_k
                                ? TWIN<T, TILE, ALONG_K, ALONG_K>
                            : product.a_along_k ? TWIN<T, TILE, ALONG_K, ACROSS_K>
                            : product.b_along_k ? TWIN<T, TILE, ACROSS_K, ALONG_K>
                                                : TWIN<T, TILE, ACROSS_K, ACROSS_K>;
        const cudaError_t error = launch(
            Plan{
                kernel, dim3(product.cut.n_blocks), dim3(NUM_THREADS<BLOCK_M>),
                sizeof(Shared<BLOCK_M, BLOCK_N, TILE.num_stages>)
            },
            out_map, a_map, b_map, product.bias, product.parts,
            call.out_is_aligned ? nullptr : product.out_ptr, call.n_batches, call.M,
            call.N, call.K, product.a.stride_batch == 0, product.b.stride_batch == 0,
            product.activation, product.cut.n_streamed
        );
        if (error != cudaSuccess) return error;
        const int64_t n_steps = ceil_div(call.K, BLOCK_K);
        return launch_sum<T>(launch, product, BLOCK_M, BLOCK_N, n_steps);
    };
    const MatmulTile& tile = TILES[product.cut.tile];
    return choose_tile<T, TILES>(launch.device(), tile, start);
}

template <typename T, RungTile TILE>
constexpr int STEP = TILE.block_k * 2 / int{sizeof(T)};  // elements of k
template <typename T, RungTile TILE, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
constexpr auto TENSOR_CORES = matmul_tensor_cores_kernel<
    T, TILE.block_m, TILE.block_n, STEP<T, TILE>, TILE.warps_m, TILE.warps_n,
    TILE.num_stages, A_K_CONTIGUOUS, B_K_CONTIGUOUS>;

template <typename T>
cudaError_t launch_tensor_cores(const Launcher& launch, const Product& product) {
    const auto start = [&]<RungTile TILE>() {
        constexpr int BLOCK_M = TILE.block_m, BLOCK_N = TILE.block_n;
        constexpr int BLOCK_K = STEP<T, TILE>, NUM_STAGES = TILE.num_stages;
        const Matrix &a = product.a, &b = product.b;
        const Call& call = product.call;
        const Cut& cut = product.cut;
        const bool a_along_k = product.a_along_k, b_along_k = product.b_along_k;
        const auto kernel = a_along_k && b_along_k ? TENSOR_CORES<T, TILE, true, true>
                            : a_along_k            ? TENSOR_CORES<T, TILE, true, false>
                            : b_along_k ? TENSOR_CORES<T, TILE, false, true>
                                        : TENSOR_CORES<T, TILE, false, false>;
        const int64_t n_parts = cut.n_streamed == 0 ? 1 : cut.n_blocks / cut.n_streamed;
        const int64_t n_steps = TILE.steps_of_part(call, n_parts);
        using Shared = tensor_cores::Shared<T, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES>;
        const cudaError_t error = launch(
            Plan{
                kernel, dim3(cut.n_blocks),
                dim3(TILE.warps_m * TILE.warps_n * WARP_SIZE), Shared::bytes(n_steps)
            },
            product.out_ptr, a.ptr, b.ptr, product.bias, product.parts, call.M, call.N,
            call.K, a.stride_batch, a.stride_row, b.stride_batch, b.stride_row,
            a.is_padded, b.is_padded, product.activation, n_parts, n_steps
        );
        if (error != cudaSuccess) return error;
        return launch_sum<T>(launch, product, BLOCK_M, BLOCK_N, n_parts * n_steps);
    };
    const RungTile& tile = TENSOR_CORES_TILES[product.cut.tile];
    return choose_tile<T, TENSOR_CORES_TILES>(launch.device(), tile, start);
}

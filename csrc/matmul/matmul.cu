// A product of matrices, fused with a bias and an activation.
//
//   matmul: out[i, j] = f(sum over k of a[i, k] b[k, j] + bias[j])
//
// Layout   out: contiguous. a, b: rows or columns contiguous, with any stride between them,
//          and any stride between batches, 0 for an operand that all batches share.
// Traffic  an element of a or b that a block has loaded serves all columns or rows of its
//          tile. Large products are bound by the tensor cores, those of few rows by b.
// Limits   accumulates in float32, so float16 and bfloat16 are rounded once. Tensor cores
//          take float32 only as tf32; where that will not do, FMA computes.
// Mirror   triton_kernels/matmul/matmul.py differs in matmul_kernel, because Triton gives all
//          warps of a program the same work, and decides itself when they wait
// Source   the rungs tiled and tensor_cores, one step at a time; NVIDIA, CUTLASS:
//          persistent, warp-specialised kernels for Hopper

#include "common/dtype.cuh"
#include "common/epilogue.cuh"
#include "common/launch.cuh"
#include "common/table.cuh"
#include "common/tensor_map.cuh"
#include "matmul/first.cuh"
#include "matmul/model.cuh"
#include "matmul/tensor_cores.cuh"
#include "matmul/tiled.cuh"
#include "matmul/twin.cuh"

namespace {

enum class MatmulRung : int { chosen, first, tiled, tensor_cores, twin };

// The calls that a rung can serve.
struct Regime {
    MatmulRung rung;
    bool takes_ieee = true;  // float32 as IEEE 754 has it
    bool takes_tf32 = true;  // float32 that may be rounded to tf32
    bool needs_tensor_maps = false;
    int min_arch = 0;  // the first architecture, such as 90
    int max_arch = 999;

    bool serves(const Device& device, const Call& call) const {
        const bool takes_float32 = call.tf32 ? takes_tf32 : takes_ieee;
        return (takes_float32 || call.dtype != DType::float32) &&
               (call.has_tensor_maps || !needs_tensor_maps) &&
               min_arch <= device.arch && device.arch <= max_arch;
    }
};

// A call takes the first rung that can serve it.
constexpr Regime REGIMES[] = {
    {MatmulRung::twin, false, false, true, 90, 90},
    {MatmulRung::tensor_cores, false},
    {MatmulRung::tiled},
    {MatmulRung::first},
};

template <typename T, MatmulTile TILE, ptx::Major A_MAJOR, ptx::Major B_MAJOR>
constexpr auto TWIN =
    matmul_kernel<T, TILE.block_m, TILE.block_n, TILE.num_stages, A_MAJOR, B_MAJOR>;

}  // namespace

// tile, n_blocks and n_streamed: a Cut with its tile counted from 1, by which the twin is tried;
// 0 for the one that the model chooses. parts, n_arrived: memory of any contents for two parts
// of the largest tile for each multiprocessor, and four counts; null where tiles are not shared.
cudaError_t matmul(
    const Launcher& launch, DType dtype, void* out, const void* a, const void* b,
    const void* bias, int64_t n_batches, int64_t M, int64_t N, int64_t K,
    int64_t a_stride_batch, int64_t a_stride_row, int64_t a_stride_col,
    int64_t b_stride_batch, int64_t b_stride_row, int64_t b_stride_col, int activation,
    bool tf32, int tile, int64_t n_blocks, int64_t n_streamed, void* parts,
    void* n_arrived, int rung
) {
    const Device& device = launch.device();
    const bool a_along_k = a_stride_col == 1, b_along_k = b_stride_row == 1;
    const int64_t a_stride = a_along_k ? a_stride_row : a_stride_col;
    const int64_t b_stride = b_along_k ? b_stride_col : b_stride_row;

    // Tensor maps need aligned rows. The twin counts in 32 bits and needs a step along K.
    constexpr int64_t MOST = (int64_t{1} << 31) - 1;
    Call call{
        dtype,
        tf32,
        n_batches,
        M,
        N,
        K,
        false,
        a_stride % model::LINE_SIZE == 0,
        b_stride % model::LINE_SIZE == 0
    };
    call.has_tensor_maps =
        K > 0 && K <= MOST && call.n_tiles(64, 64) <= MOST / 64 &&
        have_vectors(
            dtype,
            {{out, N}, {a, a_stride, a_stride_batch}, {b, b_stride, b_stride_batch}}
        );
    auto chosen = MatmulRung::chosen;
    for (const Regime& regime : REGIMES) {
        const bool is_asked = rung == 0 || MatmulRung{rung} == regime.rung;
        if (chosen == MatmulRung::chosen && is_asked && regime.serves(device, call)) {
            chosen = regime.rung;
        }
    }
    if (chosen == MatmulRung::chosen) return cudaErrorNotSupported;

    const auto start = [&](const auto& plan) {
        return launch(
            plan, out, a, b, bias, M, N, K, a_stride_batch, a_stride_row, a_stride_col,
            b_stride_batch, b_stride_row, b_stride_col
        );
    };
    const auto start_twin = [&]<typename T>() {
        using namespace twin;
        const auto operand_map = [&](const void* ptr, bool along_k, int64_t outer_size,
                                     int64_t stride_batch, int64_t stride) {
            return make_tensor_map<T>(
                ptr, stride_batch == 0 ? 1 : n_batches, along_k ? outer_size : K,
                along_k ? K : outer_size, stride_batch, stride, BOX_SIZE
            );
        };
        TensorMap out_map =
            make_tensor_map<T>(out, n_batches, M, N, M * N, N, BOX_SIZE);
        TensorMap a_map = operand_map(a, a_along_k, M, a_stride_batch, a_stride);
        TensorMap b_map = operand_map(b, b_along_k, N, b_stride_batch, b_stride);
        for (TensorMap* map : {&out_map, &a_map, &b_map}) {
            if (launch.describes()) break;
            if (const cudaError_t error = encode_tensor_map<T>(map)) return error;
        }
        const Cut cut = tile == 0 ? model::choose(call, device.n_sms, parts != nullptr)
                                  : Cut{tile - 1, n_blocks, n_streamed};
        const auto start_tile = [&]<MatmulTile TILE>() {
            constexpr int BLOCK_M = TILE.block_m, BLOCK_N = TILE.block_n;
            constexpr auto ALONG_K = ptx::Major::K, ACROSS_K = ptx::Major::MN;
            const auto kernel = a_along_k && b_along_k ? TWIN<T, TILE, ALONG_K, ALONG_K>
                                : a_along_k ? TWIN<T, TILE, ALONG_K, ACROSS_K>
                                : b_along_k ? TWIN<T, TILE, ACROSS_K, ALONG_K>
                                            : TWIN<T, TILE, ACROSS_K, ACROSS_K>;
            if (cut.n_streamed > 0) {
                const Plan plan{matmul_count_kernel<T>, dim3(1), dim3(COUNT_THREADS)};
                const int64_t n_counts = cut.n_streamed * NUM_CONSUMERS<BLOCK_M>;
                if (const cudaError_t error = launch(plan, n_arrived, n_counts))
                    return error;
            }
            return launch(
                Plan{
                    kernel, dim3(cut.n_blocks), dim3(NUM_THREADS<BLOCK_M>),
                    sizeof(MatmulShared<BLOCK_M, BLOCK_N, TILE.num_stages>)
                },
                out_map, a_map, b_map, bias, parts, n_arrived, n_batches, M, N, K,
                a_stride_batch == 0, b_stride_batch == 0, activation, cut.n_streamed
            );
        };
        return choose_tile<T, TILES>(device, TILES[cut.tile], start_tile);
    };

    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        if constexpr (sizeof(T) == 2) {
            if (chosen == MatmulRung::twin) return start_twin.template operator()<T>();
        }
        const auto start_rung = [&]<Activation ACTIVATION>() {
            if (chosen == MatmulRung::first) {
                const int64_t n_tiles = call.n_tiles(first::BLOCK_M, first::BLOCK_N);
                return start(plan_first(matmul_first_kernel<T, ACTIVATION>, n_tiles));
            }
            if (chosen == MatmulRung::tiled) {
                using namespace tiled;
                const dim3 grid(call.n_tiles(BLOCK_M, BLOCK_N));
                const auto kernel = matmul_tiled_kernel<T, ACTIVATION>;
                return start(Plan{kernel, grid, dim3(NUM_THREADS), sizeof(Shared)});
            }
            using namespace tensor_cores;
            const dim3 grid(call.n_tiles(BLOCK_M, BLOCK_N));
            const auto kernel =
                a_along_k && b_along_k
                    ? matmul_tensor_cores_kernel<T, true, true, ACTIVATION>
                : a_along_k ? matmul_tensor_cores_kernel<T, true, false, ACTIVATION>
                : b_along_k ? matmul_tensor_cores_kernel<T, false, true, ACTIVATION>
                            : matmul_tensor_cores_kernel<T, false, false, ACTIVATION>;
            return start(Plan{kernel, grid, dim3(NUM_THREADS), SHARED_BYTES});
        };
        return dispatch_activation(Activation{activation}, start_rung);
    });
}

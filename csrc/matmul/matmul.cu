// A product of matrices, fused with a bias and an activation.
//
//   matmul: out[i, j] = f(sum over k of a[i, k] b[k, j] + bias[j])
//
// Layout   out: contiguous. a, b: rows or columns contiguous, with any stride between them,
//          and any stride between batches, 0 for an operand that all batches share.
// Traffic  an element of a or b that a block has loaded serves all columns or rows of its
//          tile. Large products are bound by the tensor cores, those of few rows by b.
// Limits   accumulates in float32, so float16 and bfloat16 are rounded once. Tensor cores
//          take float32 only as tf32, rounded to 11 bits, or as the sum of two such numbers
//          (tf32x3); where that will not do, FMA computes.
// Mirror   triton_kernels/matmul/matmul.py differs in matmul_kernel, because Triton gives all
//          warps of a program the same work, decides itself when they wait, and has no clusters
//          whose blocks load for each other, in
//          matmul_tensor_cores_kernel, which reads aligned copies of operands here alone, and
//          can have a multiprocessor to itself, so that the next launch may begin earlier;
//          matmul_tiled_kernel has b on the left there where that alone lies along k
// Source   the rungs tiled and tensor_cores, one step at a time; NVIDIA, CUTLASS:
//          persistent, warp-specialised kernels for Hopper

#include "common/dtype.cuh"
#include "common/epilogue.cuh"
#include "common/launch.cuh"
#include "matmul/first.cuh"
#include "matmul/launches.cuh"
#include "matmul/model.cuh"
#include "matmul/tiled.cuh"

namespace {

enum class MatmulRung : int { chosen, first, tiled, tensor_cores, twin };

// The calls that a rung can serve.
struct Regime {
    MatmulRung rung;
    bool takes_ieee = true;  // float32 as IEEE 754 has it
    bool takes_tf32 = true;  // float32 that may be rounded to tf32
    bool takes_tf32x3 = true;
    bool needs_tensor_maps = false;
    bool needs_32_bits = false;  // for rows, columns and tiles
    int min_arch = 0;            // the first architecture, such as 90
    int max_arch = 999;

    bool serves(const Device& device, const Call& call) const {
        const bool takes[] = {takes_ieee, takes_tf32, takes_tf32x3};
        return (takes[int(call.precision)] || call.dtype != DType::float32) &&
               (call.has_tensor_maps || !needs_tensor_maps) &&
               (call.fits_32_bits || !needs_32_bits) && min_arch <= device.arch &&
               device.arch <= max_arch;
    }
};

// A call takes the first rung that can serve it or, of the last two, the one that the model
// chooses.
constexpr Regime REGIMES[] = {
    {.rung = MatmulRung::twin,
     .takes_ieee = false,
     .needs_tensor_maps = true,
     .needs_32_bits = true,
     .min_arch = 90,
     .max_arch = 90},
    {.rung = MatmulRung::tensor_cores,
     .takes_ieee = false,
     .takes_tf32x3 = false,
     .needs_32_bits = true},
    {.rung = MatmulRung::tiled},
    {.rung = MatmulRung::first},
};

}  // namespace

// tile, n_blocks and n_streamed: a Cut with its tile counted from 1, by which a rung but the
// first is tried; 0 for the one that the model chooses. parts: memory of any contents
// for two parts of the largest tile for each multiprocessor; null where tiles are not shared.
// copies: memory for operands that cannot be read in place, with aligned rows, a's first; null
// where none may be copied.
cudaError_t matmul(
    const Launcher& launch, DType dtype, void* out, const void* a, const void* b,
    const void* bias, int64_t n_batches, int64_t M, int64_t N, int64_t K,
    int64_t a_stride_batch, int64_t a_stride_row, int64_t a_stride_col,
    int64_t b_stride_batch, int64_t b_stride_row, int64_t b_stride_col, int activation,
    int precision, int tile, int64_t n_blocks, int64_t n_streamed, void* parts,
    void* copies, int rung
) {
    const Device& device = launch.device();
    const bool a_along_k = a_stride_col == 1, b_along_k = b_stride_row == 1;
    Product product{};
    product.out = Matrix{out, M, N, M * N, N};
    product.a = a_along_k ? Matrix{a, M, K, a_stride_batch, a_stride_row, true}
                          : Matrix{a, K, M, a_stride_batch, a_stride_col, false};
    product.b = b_along_k ? Matrix{b, N, K, b_stride_batch, b_stride_col, true}
                          : Matrix{b, K, N, b_stride_batch, b_stride_row, false};
    // The stride of a single row is never taken.
    for (Matrix* x : {&product.a, &product.b}) {
        if (x->n_rows == 1) x->stride_row = x->copy_stride(dtype);
    }
    product.out_ptr = out;
    product.bias = bias;
    product.parts = parts;
    product.activation = activation;

    // Tensor maps need aligned rows, and a step along K. Tiles are counted in 32 bits.
    constexpr int64_t MOST = (int64_t{1} << 31) - 1;
    Call& call = product.call;
    call = Call{dtype, Precision{precision}, n_batches, M, N, K};
    if (dtype == DType::float32) choose_left(product);
    call.out_is_aligned = product.out.is_aligned(dtype);
    call.a_has_lines = product.a.has_lines(dtype);
    call.b_has_lines = product.b.has_lines(dtype);
    call.are_aligned = product.a.is_aligned(dtype) && product.b.is_aligned(dtype);
    call.has_words = product.a.has_words(dtype) && product.b.has_words(dtype);
    for (const Matrix* x : {&product.a, &product.b}) {
        call.n_copied += x->n_copied(dtype, n_batches);
    }
    // Only calls on Hopper get memory for parts and copies, wherever others are planned.
    const bool may_share = parts != nullptr && device.arch == 90;
    const bool may_copy = copies != nullptr && device.arch == 90;
    call.fits_32_bits = M <= MOST && N <= MOST && call.n_tiles(16, 16) <= MOST &&
                        call.n_tiles(64, 64) <= MOST / 64;
    call.has_tensor_maps =
        (call.n_copied == 0 || may_copy) && call.fits_32_bits && 0 < K && K <= MOST;
    auto chosen = MatmulRung::chosen;
    for (const Regime& regime : REGIMES) {
        const bool is_asked = rung == 0 || MatmulRung{rung} == regime.rung;
        if (chosen == MatmulRung::chosen && is_asked && regime.serves(device, call)) {
            chosen = regime.rung;
        }
    }
    if (chosen == MatmulRung::chosen) return cudaErrorNotSupported;

    // The twin reads aligned operands alone; either rung is faster with them. Those of float32
    // are copied for the twin alone.
    const bool is_any = rung == 0, is_float32 = dtype == DType::float32;
    const auto choose_small = [&](const Call& each) {
        return model::choose<TENSOR_CORES_TILES>(each, device.n_sms, may_share);
    };
    model::Choice small = choose_small(call);
    const auto choose_large = [&]<const auto & TABLE>(const Call& each) {
        return model::choose<TABLE>(each, device.n_sms, may_share);
    };
    const bool splits = is_float32 && call.precision == Precision::tf32x3;
    const Call from_left = product.b_is_left ? call.transposed() : call;
    const model::Choice large =
        splits       ? choose_large.template operator()<TF32X3_TILES>(from_left)
        : is_float32 ? choose_large.template operator()<TF32_TILES>(from_left)
                     : choose_large.template operator()<TILES>(call);
    bool is_copied = false;
    if (is_any && may_copy && !call.are_aligned && !is_float32) {
        Call aligned = call;
        aligned.are_aligned = true;
        model::Choice other = choose_small(aligned);
        other.n_cycles += model::align_cycles(call);
        is_copied = other.n_cycles < small.n_cycles;
        if (is_copied) small = other;
    }
    // Of float32 by IEEE 754, and wherever that rung is asked for.
    const auto choose_tiled = [&] {
        constexpr TiledTile LARGE = TILED_TILES[2];
        constexpr int64_t LARGE_BYTES =
            sizeof(tiled::Shared<LARGE.block_m, LARGE.block_n>);
        const bool may_share_sums = may_share && call.fits_32_bits;
        return LARGE_BYTES <= device.max_shared_bytes
                   ? model::choose<TILED_TILES>(call, device.n_sms, may_share_sums)
                   : model::choose<SMALL_TILED_TILES>(
                         call, device.n_sms, may_share_sums
                     );
    };
    const bool may_be_small = is_any && !splits;
    if (chosen == MatmulRung::twin && may_be_small && small.n_cycles < large.n_cycles) {
        chosen = MatmulRung::tensor_cores;
    }
    const bool is_twin = chosen == MatmulRung::twin;
    is_copied = is_twin || (is_copied && chosen == MatmulRung::tensor_cores);
    product.cut = tile != 0                     ? Cut{tile - 1, n_blocks, n_streamed}
                  : is_twin                     ? large.cut
                  : chosen == MatmulRung::tiled ? choose_tiled().cut
                                                : small.cut;
    product.begins_early = (is_twin ? large : small).n_cycles < model::LONG_CYCLES;

    const auto start = [&](const auto& plan, auto... more) {
        return launch(
            plan, out, a, b, bias, M, N, K, a_stride_batch, a_stride_row, a_stride_col,
            b_stride_batch, b_stride_row, b_stride_col, more...
        );
    };
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        if (is_copied) {
            const cudaError_t error = launch_copies<T>(launch, product, copies);
            if (error != cudaSuccess) return error;
        }
        if constexpr (sizeof(T) == 2) {
            if (is_twin) return launch_twin<T>(launch, product);
        } else if (is_twin && splits) {
            return launch_tf32_twin<2, TF32X3_TILES>(launch, product);
        } else if (is_twin) {
            return launch_tf32_twin<1, TF32_TILES>(launch, product);
        }
        if (chosen == MatmulRung::tensor_cores) {
            return launch_tensor_cores<T>(launch, product);
        }
        const auto start_rung = [&]<Activation ACTIVATION>() {
            if (chosen == MatmulRung::first) {
                const int64_t n_tiles = call.n_tiles(first::BLOCK_M, first::BLOCK_N);
                return start(plan_first(matmul_first_kernel<T, ACTIVATION>, n_tiles));
            }
            const auto start_tiled = [&]<TiledTile TILE>() {
                constexpr int BLOCK_M = TILE.block_m, BLOCK_N = TILE.block_n;
                const Cut& cut = product.cut;
                const int64_t n_parts =
                    cut.n_streamed == 0 ? 1 : cut.n_blocks / cut.n_streamed;
                const int64_t n_sums = TILE.sums_of_part(call, n_parts);
                const cudaError_t error = start(
                    Plan{
                        matmul_tiled_kernel<T, ACTIVATION, BLOCK_M, BLOCK_N>,
                        dim3(cut.n_blocks), dim3(tiled::NUM_THREADS<BLOCK_M>),
                        sizeof(tiled::Shared<BLOCK_M, BLOCK_N>)
                    },
                    parts, n_parts, n_sums * model::K_PER_SUM
                );
                if (error != cudaSuccess) return error;
                return launch_sum<T>(
                    launch, product, BLOCK_M, BLOCK_N, n_parts * n_sums
                );
            };
            const TiledTile& tile = TILED_TILES[product.cut.tile];
            return choose_tile<T, TILED_TILES>(device, tile, start_tiled);
        };
        return dispatch_activation(Activation{activation}, start_rung);
    });
}

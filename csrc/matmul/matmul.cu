// A product of matrices, with what follows it fused: a bias and an activation.
//
//   matmul: out[i, j] = f(sum over k of a[i, k] b[k, j] + bias[j])
//
// Layout   out: contiguous. a, b: of the strides of a row and of a column one is 1 and
//          the other anything; any stride from batch to batch, 0 for a shared operand.
// Traffic  an element of a or b that has come to a block serves a tile's columns or rows;
//          large products are bound by the tensor cores, those of few rows by reading b.
// Limits   accumulates in float32, so float16 and bfloat16 are rounded once. Of float32
//          tensor cores take no more than tf32: where that will not do, FMA computes.
// Mirror   triton_kernels/matmul/matmul.py differs in matmul_kernel, because Triton 3.6 gives
//          all warps of a Hopper program the same work, and plans their waiting itself.
//          triton_kernels/matmul/gluon.py, which long epilogues get, is nearer to this.
// Source   the rungs below it in csrc/matmul, one step at a time; NVIDIA, CUTLASS:
//          persistent, warp-specialised kernels for Hopper

#include "common/dtype.cuh"
#include "common/epilogue.cuh"
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "common/tensor_map.cuh"
#include "matmul/first.cuh"
#include "matmul/tensor_cores.cuh"
#include "matmul/tiled.cuh"

namespace hopper {

// 64 rows of 64 elements: what one copy by the tensor memory accelerator brings, what a
// warpgroup multiplies at a time, and what it stores at a time.
constexpr int BOX_SIZE = 64;
constexpr int ROW_BYTES = 128;
[[maybe_unused]] constexpr int BLOCK_K = BOX_SIZE;  // by kernels of sm_90 alone
constexpr int WARPGROUP_SIZE = 128;

struct alignas(1024) Box {
    unsigned char bytes[BOX_SIZE * ROW_BYTES];
};

// Each 64 rows of a tile have a warpgroup that multiplies them, and one more loads.
template <int BLOCK_M>
constexpr int NUM_CONSUMERS = BLOCK_M / BOX_SIZE;
template <int BLOCK_M>
constexpr int NUM_THREADS = (NUM_CONSUMERS<BLOCK_M> + 1) * WARPGROUP_SIZE;

// Of the 227 KB that a block can have. The stages form a ring: `full` tells those that
// multiply that a stage has come, `empty` tells the one that loads that it has been used.
// `turn` tells the second warpgroup that the first one is nearly through with its tile. Each
// has the bias of its tile's columns, times what the activation wants.
template <int BLOCK_M, int BLOCK_N, int NUM_STAGES>
struct MatmulShared {
    Box a[NUM_STAGES][BLOCK_M / BOX_SIZE];
    Box b[NUM_STAGES][BLOCK_N / BOX_SIZE];
    Box out[NUM_CONSUMERS<BLOCK_M>][2];
    float2 scaled_bias[NUM_CONSUMERS<BLOCK_M>][BLOCK_N / 2];
    uint64_t full[NUM_STAGES];
    uint64_t empty[NUM_STAGES];
    uint64_t turn;
};

// A stage, and the parity of the phase that its barriers are in.
template <int NUM_STAGES>
struct RingPosition {
    int stage = 0;
    int parity = 0;

    __device__ void advance() {
        if (++stage < NUM_STAGES) return;
        stage = 0;
        parity ^= 1;
    }
};

// Where a tile begins.
struct Tile {
    int batch;
    int row;
    int col;
};

// The tiles of 8 rows of tiles, column by column, then those of the next 8: what is under
// way at a time reads few different rows and columns, which stay in the L2.
template <int BLOCK_M, int BLOCK_N>
__device__ __forceinline__ Tile tile_at(int index, int n_tile_rows, int n_tile_cols) {
    constexpr int GROUP_ROWS = 8;
    const int batch = index / (n_tile_rows * n_tile_cols);
    index %= n_tile_rows * n_tile_cols;
    const int first_row = index / (GROUP_ROWS * n_tile_cols) * GROUP_ROWS;
    index %= GROUP_ROWS * n_tile_cols;
    const int n_rows = min(n_tile_rows - first_row, GROUP_ROWS);
    return {batch, (first_row + index % n_rows) * BLOCK_M, index / n_rows * BLOCK_N};
}

template <typename T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t bits;
    if constexpr (std::is_same_v<T, __half>) {
        const __half2 pair = __floats2half2_rn(low, high);
        __builtin_memcpy(&bits, &pair, sizeof(bits));
    } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        __builtin_memcpy(&bits, &pair, sizeof(bits));
    }
    return bits;
}

}  // namespace hopper

// The last rung: warpgroups of 128 threads multiply straight from shared memory, and one
// thread more, which does nothing else, has the tensor memory accelerator bring what they
// need: stages ahead, and into the next tile while they are still at the epilogue of this
// one. A block takes every gridDim.x-th tile.
template <
    typename T,
    int BLOCK_M,
    int BLOCK_N,
    int NUM_STAGES,
    ptx::Major A_MAJOR,
    ptx::Major B_MAJOR>
__global__ void __launch_bounds__(hopper::NUM_THREADS<BLOCK_M>, 1) matmul_kernel(
    const __grid_constant__ TensorMap out_map,  // (n_batches, M, N)
    const __grid_constant__ TensorMap a_map,    // (n_batches or 1, M, K), or transposed
    const __grid_constant__ TensorMap b_map,    // (n_batches or 1, K, N), or transposed
    const T* __restrict__ bias_ptr,             // (N), or null
    int n_batches,
    int M,
    int N,
    int K,
    bool a_is_shared,
    bool b_is_shared,
    int activation
) {
#if defined(TWIN_EMULATOR) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using namespace hopper;
    constexpr int A_BOXES = BLOCK_M / BOX_SIZE, B_BOXES = BLOCK_N / BOX_SIZE;
    constexpr int STAGE_BYTES = (A_BOXES + B_BOXES) * int{sizeof(Box)};
    using Shared = MatmulShared<BLOCK_M, BLOCK_N, NUM_STAGES>;
    DYNAMIC_SHARED(shared_bytes, 1024);
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    // -- tile: every gridDim.x-th one
    const int n_tile_rows = (M - 1) / BLOCK_M + 1, n_tile_cols = (N - 1) / BLOCK_N + 1;
    const int n_tiles = n_batches * n_tile_rows * n_tile_cols;
    const int n_steps = (K - 1) / BLOCK_K + 1;
    // All lanes get it from one: so the compiler knows that a warp has one value of it, and
    // of all that follows from it, which it computes once for a warp.
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP_SIZE, 0);
    const int thread = threadIdx.x % WARPGROUP_SIZE;
    RingPosition<NUM_STAGES> ring;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < NUM_STAGES; ++stage) {
            ptx::mbarrier_init(&shared.full[stage], 1);
            ptx::mbarrier_init(&shared.empty[stage], NUM_CONSUMERS<BLOCK_M>);
        }
        ptx::mbarrier_init(&shared.turn, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    // -- load: a stage as soon as all have used what was there
    if (warpgroup == NUM_CONSUMERS<BLOCK_M>) {
        ptx::setmaxnreg_dec<24>();
        if (thread != 0) return;
        for (int index = blockIdx.x; index < n_tiles; index += gridDim.x) {
            const Tile tile =
                tile_at<BLOCK_M, BLOCK_N>(index, n_tile_rows, n_tile_cols);
            const int a_batch = a_is_shared ? 0 : tile.batch;
            const int b_batch = b_is_shared ? 0 : tile.batch;
            for (int step = 0; step < n_steps; ++step) {
                const int k = step * BLOCK_K;
                uint64_t* full = &shared.full[ring.stage];
                ptx::mbarrier_wait(&shared.empty[ring.stage], ring.parity ^ 1);
                ptx::mbarrier_arrive_expect_bytes(full, STAGE_BYTES);
                #pragma unroll
                for (int i = 0; i < A_BOXES; ++i) {
                    constexpr bool ALONG_K = A_MAJOR == ptx::Major::K;
                    const int row = tile.row + i * BOX_SIZE;
                    const int x = ALONG_K ? k : row, y = ALONG_K ? row : k;
                    ptx::tma_load(
                        &shared.a[ring.stage][i], &a_map.map, x, y, a_batch, full
                    );
                }
                #pragma unroll
                for (int i = 0; i < B_BOXES; ++i) {
                    constexpr bool ALONG_K = B_MAJOR == ptx::Major::K;
                    const int col = tile.col + i * BOX_SIZE;
                    const int x = ALONG_K ? k : col, y = ALONG_K ? col : k;
                    ptx::tma_load(
                        &shared.b[ring.stage][i], &b_map.map, x, y, b_batch, full
                    );
                }
                ring.advance();
            }
        }
        return;
    }

    ptx::setmaxnreg_inc<240>();
    const int warp = thread / WARP_SIZE, lane = thread % WARP_SIZE;
    const bool takes_turns = NUM_CONSUMERS<BLOCK_M> == 2 && n_steps > NUM_STAGES;
    const bool is_plain =
        bias_ptr == nullptr && Activation{activation} == Activation::none;
    const float bias_scale = argument_scale<T>(Activation{activation});
    int turn_parity = 0;
    const auto release = [&](int stage) {
        if (thread == 0) ptx::mbarrier_arrive(&shared.empty[stage]);
    };

    const uint64_t a_stages =
        ptx::wgmma_descriptor(&shared.a[0][warpgroup], sizeof(Box), 8 * ROW_BYTES);
    const uint64_t b_stages =
        ptx::wgmma_descriptor(&shared.b[0], sizeof(Box), 8 * ROW_BYTES);

    // -- finished: what has become of the sums of the tile before, which is stored box by
    // box while this one is multiplied. Of each 8 columns a lane has 2, in row lane / 4 and
    // 8 rows below
    float sums[BLOCK_N / 8][2][2];
    uint32_t finished[BLOCK_N / 8][2];
    Tile finished_tile{};
    bool has_finished = false;

    int n_stored = 0;  // boxes, which two places take in turn
    const auto store_box = [&](int box) {
        unsigned char* out = shared.out[warpgroup][n_stored++ % 2].bytes;
        if (thread == 0) ptx::tma_store_wait_group_read<1>();
        ptx::named_barrier_sync(1 + warpgroup, WARPGROUP_SIZE);
        #pragma unroll
        for (int col = 0; col < BOX_SIZE; col += 16) {
            // Of 8 columns rows 0 to 7 and 8 to 15, twice. Lane l says where row l % 16 of
            // the first or second 8 columns lies.
            const int i = (box * BOX_SIZE + col) / 8;
            const uint32_t matrices[] = {
                finished[i][0], finished[i][1], finished[i + 1][0], finished[i + 1][1]
            };
            const int row = warp * 16 + lane % 16, chunk = col / 8 + lane / 16;
            ptx::stmatrix(out + row * ROW_BYTES + (chunk ^ row % 8) * 16, matrices);
        }
        ptx::fence_async_proxy();
        ptx::named_barrier_sync(1 + warpgroup, WARPGROUP_SIZE);
        if (thread == 0) {
            const int row = finished_tile.row + warpgroup * BOX_SIZE;
            const int col = finished_tile.col + box * BOX_SIZE;
            ptx::tma_store(&out_map.map, col, row, finished_tile.batch, out);
            ptx::tma_store_commit_group();
        }
    };

    for (int index = blockIdx.x; index < n_tiles; index += gridDim.x) {
        // -- compute: while one stage is multiplied the next one is handed in
        int in_use = -1;  // the stage that is being multiplied
        const auto multiply = [&](int step) {
            // Before its last steps the second warpgroup waits until the first one is
            // nearly through: so one is at the epilogue while the other multiplies, and the
            // tensor cores go on. Meanwhile all stages are the first one's.
            if (takes_turns && warpgroup == 1 && step == n_steps - NUM_STAGES) {
                ptx::wgmma_wait_group<0>();
                release(in_use);
                in_use = -1;
                ptx::mbarrier_wait(&shared.turn, turn_parity);
                turn_parity ^= 1;
            }
            ptx::mbarrier_wait(&shared.full[ring.stage], ring.parity);
            const uint64_t a =
                ptx::wgmma_advance(a_stages, ring.stage * int{sizeof(shared.a[0])});
            const uint64_t b =
                ptx::wgmma_advance(b_stages, ring.stage * int{sizeof(shared.b[0])});
            ptx::wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BLOCK_K; k += 16) {
                // 16 elements further along a row, or 16 rows
                constexpr int A_STEP = A_MAJOR == ptx::Major::K ? sizeof(T) : ROW_BYTES;
                constexpr int B_STEP = B_MAJOR == ptx::Major::K ? sizeof(T) : ROW_BYTES;
                ptx::wgmma_m64k16<T, A_MAJOR, B_MAJOR, BLOCK_N>(
                    reinterpret_cast<float (&)[BLOCK_N / 2]>(sums),
                    ptx::wgmma_advance(a, k * A_STEP),
                    ptx::wgmma_advance(b, k * B_STEP),
                    step > 0 || k > 0
                );
                if (k % 32 != 0) ptx::wgmma_commit_group();  // a half of the step
            }
            if (in_use >= 0) {
                ptx::wgmma_wait_group<2>();
                release(in_use);
            }
            in_use = ring.stage;
            ring.advance();
        };
        int step = 0;
        while (step < min(NUM_STAGES, n_steps)) multiply(step++);

        // The tile, which no step needs: the divisions take longer than one, and so does
        // the bias on its way here. Of that each thread fetches 2 columns, and leaves them
        // in shared memory when the boxes are stored: a lane needs 64 in the end, and has
        // no registers for them before.
        const Tile tile = tile_at<BLOCK_M, BLOCK_N>(index, n_tile_rows, n_tile_cols);
        T bias[2]{};
        const int bias_col = tile.col + thread * 2;
        if (bias_ptr != nullptr && thread < BLOCK_N / 2 && bias_col < N) {
            bias[0] = bias_ptr[bias_col];
            bias[1] = bias_ptr[bias_col + 1];
        }

        // Time to store: by now the other warpgroup, if there is one, multiplies as well.
        // A box takes longer than a step, and is made up for in two.
        #pragma unroll
        for (int box = 0; box < B_BOXES; ++box) {
            for (int i = 0; i < 2 && step < n_steps; ++i) multiply(step++);
            if (has_finished) store_box(box);
        }
        if (!is_plain) {
            // All have been through store_box since they read the bias before this one.
            if (thread < BLOCK_N / 2) {
                shared.scaled_bias[warpgroup][thread] = {
                    bias_scale * to_float(bias[0]), bias_scale * to_float(bias[1])
                };
            }
            ptx::named_barrier_sync(1 + warpgroup, WARPGROUP_SIZE);
        }
        while (step < n_steps) multiply(step++);
        if (takes_turns && warpgroup == 0) {
            // Not earlier, or the two would share the tensor cores for what is left.
            ptx::wgmma_wait_group<1>();
            if (thread == 0) ptx::mbarrier_arrive(&shared.turn);
        }

        // -- epilogue: of all sums at once, so that its activations share what follows. The
        // way to it is taken while the last ones are under way
        const auto finish = [&](auto of_sum_and_bias) {
            ptx::wgmma_wait_group<0>();
            release(in_use);
            #pragma unroll
            for (int i = 0; i < BLOCK_N / 4; ++i) {
                const auto [left, right] = sums[i / 2][i % 2];
                const float2 bias = shared.scaled_bias[warpgroup][i / 2 * 4 + lane % 4];
                finished[i / 2][i % 2] = pack<T>(
                    of_sum_and_bias(left, bias.x), of_sum_and_bias(right, bias.y)
                );
            }
        };
        if (is_plain) {
            finish([](float sum, float) { return sum; });
        } else {
            with_activation(Activation{activation}, [&]<Activation ACTIVATION>() {
                finish(epilogue<ACTIVATION, T>);
            });
        }
        finished_tile = tile;
        has_finished = true;
    }

    // -- store: what the last tile has left, box by box through shared memory
    #pragma unroll
    for (int box = 0; box < B_BOXES && has_finished; ++box) store_box(box);
    if (thread == 0) ptx::tma_store_wait_group_read<0>();
#endif
}

namespace {

// Reads both operands and writes the result by tensor maps, which only matrices of 16-bit
// numbers have here, of whose rows all begin at multiples of 16 bytes.
template <typename T>
cudaError_t matmul_twin(
    const Launcher& launch,
    T* out,
    const T* a,
    const T* b,
    const T* bias,
    int64_t n_batches,
    int64_t M,
    int64_t N,
    int64_t K,
    int64_t a_stride_batch,
    int64_t a_stride_row,
    int64_t a_stride_col,
    int64_t b_stride_batch,
    int64_t b_stride_row,
    int64_t b_stride_col,
    Activation activation
) {
    if constexpr (sizeof(T) != 2) {
        return cudaErrorNotSupported;
    } else {
        using namespace hopper;
        const bool a_along_k = a_stride_col == 1, b_along_k = b_stride_row == 1;
        const int64_t a_stride = a_along_k ? a_stride_row : a_stride_col;
        const int64_t b_stride = b_along_k ? b_stride_col : b_stride_row;
        TensorMap out_map =
            make_tensor_map<T>(out, n_batches, M, N, M * N, N, BOX_SIZE);
        TensorMap a_map = make_tensor_map<T>(
            a,
            a_stride_batch == 0 ? 1 : n_batches,
            a_along_k ? M : K,
            a_along_k ? K : M,
            a_stride_batch,
            a_stride,
            BOX_SIZE
        );
        TensorMap b_map = make_tensor_map<T>(
            b,
            b_stride_batch == 0 ? 1 : n_batches,
            b_along_k ? N : K,
            b_along_k ? K : N,
            b_stride_batch,
            b_stride,
            BOX_SIZE
        );
        for (TensorMap* map : {&out_map, &a_map, &b_map}) {
            if (launch.describes()) break;
            const cudaError_t error = encode_tensor_map<T>(map);
            if (error != cudaSuccess) return error;
        }

        const auto n_tiles = [&](int block_m, int block_n) {
            return n_batches * ceil_div(M, block_m) * ceil_div(N, block_n);
        };
        const auto start = [&]<int BLOCK_M, int BLOCK_N, int NUM_STAGES>() {
            constexpr auto ALONG_K = ptx::Major::K, ACROSS_K = ptx::Major::MN;
            const auto kernel =
                a_along_k ? b_along_k ? matmul_kernel<
                                            T,
                                            BLOCK_M,
                                            BLOCK_N,
                                            NUM_STAGES,
                                            ALONG_K,
                                            ALONG_K>
                                      : matmul_kernel<
                                            T,
                                            BLOCK_M,
                                            BLOCK_N,
                                            NUM_STAGES,
                                            ALONG_K,
                                            ACROSS_K>
                : b_along_k
                    ? matmul_kernel<T, BLOCK_M, BLOCK_N, NUM_STAGES, ACROSS_K, ALONG_K>
                    : matmul_kernel<
                          T,
                          BLOCK_M,
                          BLOCK_N,
                          NUM_STAGES,
                          ACROSS_K,
                          ACROSS_K>;
            const int64_t n_blocks = n_tiles(BLOCK_M, BLOCK_N);
            const int64_t n_sms = launch.device().n_sms;
            return launch(
                Plan{
                    kernel,
                    dim3(n_blocks < n_sms ? n_blocks : n_sms),
                    dim3(NUM_THREADS<BLOCK_M>),
                    sizeof(MatmulShared<BLOCK_M, BLOCK_N, NUM_STAGES>)
                },
                out_map,
                a_map,
                b_map,
                bias,
                static_cast<int>(n_batches),
                static_cast<int>(M),
                static_cast<int>(N),
                static_cast<int>(K),
                a_stride_batch == 0,
                b_stride_batch == 0,
                static_cast<int>(activation)
            );
        };

        // The table of tiles: the larger, the fewer bytes a multiplication costs, as long
        // as three in four of an H200's multiprocessors have one. All stages together
        // have nearly 200 KB.
        constexpr int64_t ENOUGH = 99;
        if (M > 64 && n_tiles(128, 256) >= ENOUGH)
            return start.template operator()<128, 256, 4>();
        if (M > 64 && n_tiles(128, 128) >= ENOUGH)
            return start.template operator()<128, 128, 6>();
        return start.template operator()<64, 64, 12>();
    }
}

// Rung 0 of the launcher is the choice of one of these.
enum class MatmulRung : int { chosen, first, tiled, tensor_cores, twin };

}  // namespace

cudaError_t matmul(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* a,
    const void* b,
    const void* bias,
    int64_t n_batches,
    int64_t M,
    int64_t N,
    int64_t K,
    int64_t a_stride_batch,
    int64_t a_stride_row,
    int64_t a_stride_col,
    int64_t b_stride_batch,
    int64_t b_stride_row,
    int64_t b_stride_col,
    int activation,
    bool tf32,
    int rung
) {
    const int64_t element_bytes = dtype == DType::float32 ? 4 : 2;
    const auto in_steps_of_16_bytes = [&](int64_t elements) {
        return elements * element_bytes % 16 == 0;
    };
    const auto is_aligned = [](const void* ptr) {
        return reinterpret_cast<uintptr_t>(ptr) % 16 == 0;
    };
    const bool has_tensor_maps =
        is_aligned(out) && is_aligned(a) && is_aligned(b) && in_steps_of_16_bytes(N) &&
        in_steps_of_16_bytes(a_stride_col == 1 ? a_stride_row : a_stride_col) &&
        in_steps_of_16_bytes(b_stride_row == 1 ? b_stride_col : b_stride_row) &&
        in_steps_of_16_bytes(a_stride_batch) && in_steps_of_16_bytes(b_stride_batch);
    constexpr int64_t MOST = (int64_t{1} << 31) - 1;
    const bool is_counted_by_int =
        K <= MOST && n_batches * ceil_div(M, 64) * ceil_div(N, 64) <= MOST / 64;

    // The table of regimes.
    const bool is_float32 = dtype == DType::float32;
    const bool serves_hopper = !is_float32 && launch.device().arch == 90 && K > 0 &&
                               has_tensor_maps && is_counted_by_int;
    MatmulRung chosen{rung};
    if (chosen == MatmulRung::chosen) {
        chosen = is_float32 && !tf32 ? MatmulRung::tiled
                 : serves_hopper     ? MatmulRung::twin
                                     : MatmulRung::tensor_cores;
    }
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        const auto start = [&](auto* rung_of_type) {
            return rung_of_type(
                launch,
                static_cast<T*>(out),
                static_cast<const T*>(a),
                static_cast<const T*>(b),
                static_cast<const T*>(bias),
                n_batches,
                M,
                N,
                K,
                a_stride_batch,
                a_stride_row,
                a_stride_col,
                b_stride_batch,
                b_stride_row,
                b_stride_col,
                Activation{activation}
            );
        };
        switch (chosen) {
            case MatmulRung::first:
                return start(matmul_first<T>);
            case MatmulRung::tiled:
                return start(matmul_tiled<T>);
            case MatmulRung::tensor_cores:
                if (is_float32 && !tf32) break;
                return start(matmul_tensor_cores<T>);
            case MatmulRung::twin:
                if (!serves_hopper) break;
                return start(matmul_twin<T>);
            default:
                break;
        }
        return cudaErrorNotSupported;  // the rung that was asked for cannot serve this
    });
}

// The ring of stages in shared memory through which tiles of a and b come to matmul_kernel,
// and the thread that fills it.
#pragma once

#include "common/ptx/barrier.cuh"
#include "common/ptx/multicast.cuh"
#include "common/ptx/tma.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/tensor_map.cuh"

namespace twin {

// 64 rows of 64 elements: the unit of copies by the tensor memory accelerator, of
// multiplications by a warpgroup, and of stores.
constexpr int BOX_SIZE = 64;
constexpr int ROW_BYTES = 128;
constexpr int BLOCK_K = BOX_SIZE;
constexpr int WARPGROUP_SIZE = 128;

struct alignas(1024) Box {
    unsigned char bytes[BOX_SIZE * ROW_BYTES];
};

// Each 64 rows of a tile have a warpgroup that multiplies them; one more loads.
template <int BLOCK_M>
constexpr int NUM_CONSUMERS = BLOCK_M / BOX_SIZE;
template <int BLOCK_M>
constexpr int NUM_THREADS = (NUM_CONSUMERS<BLOCK_M> + 1) * WARPGROUP_SIZE;

// A block's shared memory, of 227 KB at most. `full` tells the consumers that a stage has
// come, `empty` tells the producer that all consumers have used it. `turn` tells the second
// consumer that the first one is nearly done with its tile.
template <int BLOCK_M, int BLOCK_N, int NUM_STAGES>
struct Shared {
    Box a[NUM_STAGES][BLOCK_M / BOX_SIZE];
    Box b[NUM_STAGES][BLOCK_N / BOX_SIZE];
    Box out[NUM_CONSUMERS<BLOCK_M>][2];
    float2 scaled_bias[NUM_CONSUMERS<BLOCK_M>][BLOCK_N / 2];  // of the tile's columns
    uint64_t full[NUM_STAGES];
    uint64_t empty[NUM_STAGES];
    uint64_t turn;
};

template <typename Shared>
__device__ __forceinline__ void init_barriers(Shared& shared, int n_releases) {
    for (uint64_t& full : shared.full) ptx::mbarrier_init(&full, 1);
    for (uint64_t& empty : shared.empty) ptx::mbarrier_init(&empty, n_releases);
    if constexpr (requires { shared.turn; }) ptx::mbarrier_init(&shared.turn, 1);
    ptx::fence_mbarrier_init();
}

// A stage, and the parity of its barriers' running phase.
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

// How a stage's rows of an operand come, ROW_BYTES each, as they lie in shared memory: its own
// rows where these are along k, or else 64 rows of k for each box. A row that lies outside of
// the matrix takes a copy as long as others, so that of a matrix smaller than a tile only what
// there is is copied.
struct Copies {
    int n_rows;      // of a copy
    int stage_rows;  // of all copies, by all blocks that share them
    int n_blocks;    // 1, 2 or 4
    int first;       // row of this block's copies
    int n_own_rows;  // 0 where other blocks copy all that there is
};

// Of `block_size` rows or columns of a tile, where the matrix has `size`.
__host__ __device__ constexpr Copies copies_of(
    ptx::Major major, int64_t size, int block_size, int n_blocks, int block = 0
) {
    const int shift = n_blocks >> 1;  // divides by 1, 2 or 4
    const int n_outer = size < block_size ? static_cast<int>(size) : block_size;
    if (major == ptx::Major::K) {
        // Shares begin where the order of swizzled chunks does, every 8 rows.
        const int n_shared = (((n_outer - 1) >> (3 + shift)) + 1) * 8;
        const int n_rows = n_blocks == 1 ? n_outer : n_shared, first = block * n_rows;
        int stage_rows = n_rows;
        while (stage_rows < n_outer) stage_rows += n_rows;
        return {n_rows, stage_rows, n_blocks, first, first < n_outer ? n_rows : 0};
    }
    const int n_boxes = (n_outer - 1) / BOX_SIZE + 1;
    const int n_own_rows = n_boxes * BOX_SIZE >> shift;
    const bool have_whole_boxes = n_own_rows % BOX_SIZE == 0;
    const int n_rows = have_whole_boxes ? BOX_SIZE : BOX_SIZE >> shift;
    return {n_rows, n_boxes * BOX_SIZE, n_blocks, block * n_own_rows, n_own_rows};
}

// Zeros for the rows of all stages that no copy fills.
template <typename Shared>
__device__ __forceinline__ void clear_rest(
    Shared& shared, const Copies& a_copies, const Copies& b_copies
) {
    const auto clear = [](auto& stages, const Copies& copies) {
        constexpr int ROW_CHUNKS = ROW_BYTES / int{sizeof(uint4)};
        constexpr int NUM_CHUNKS = int{sizeof(stages[0])} / int{sizeof(uint4)};
        const int first = copies.stage_rows * ROW_CHUNKS;
        if (first == NUM_CHUNKS) return;
        for (auto& boxes : stages) {
            auto* const chunks = reinterpret_cast<uint4*>(boxes);
            for (int i = first + threadIdx.x; i < NUM_CHUNKS; i += blockDim.x) {
                chunks[i] = {};
            }
        }
        ptx::fence_async_proxy();
    };
    clear(shared.a, a_copies);
    clear(shared.b, b_copies);
}

// Starts this block's copies of a stage, from `outer` on along the operand's outer dimension,
// for all blocks that share them.
template <ptx::Major MAJOR, int NUM_BOXES>
__device__ __forceinline__ void load_stage(
    Box (&boxes)[NUM_BOXES], const TensorMap& map, int outer, int k, int batch,
    uint64_t* full, const Copies& copies
) {
    const auto copy = [&](int row, int x, int y) {
        void* const place = boxes->bytes + row * ROW_BYTES;
        if (copies.n_blocks == 1) {
            ptx::tma_load(place, &map.map, x, y, batch, full);
        } else {
            const uint16_t all = (1 << copies.n_blocks) - 1;
            ptx::tma_load_multicast(place, &map.map, x, y, batch, full, all);
        }
    };
    const int first = copies.first;
    if (MAJOR == ptx::Major::K) {
        if (copies.n_own_rows > 0) copy(first, k, outer + first);
    } else if (copies.n_blocks == 1) {
        #pragma unroll
        for (int box = 0; box < NUM_BOXES * BOX_SIZE; box += BOX_SIZE) {
            if (box < copies.n_own_rows) copy(box, outer + box, k);
        }
    } else {
        #pragma unroll 1
        for (int i = 0; i < copies.n_own_rows; i += copies.n_rows) {
            const int box_row = (first + i) % BOX_SIZE;
            copy(first + i, outer + first + i - box_row, k + box_row);
        }
    }
}

}  // namespace twin

// What the warps that share a row tell each other, be they of one block or of a cluster of
// blocks along y.
#pragma once

#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "common/reduce.cuh"
#include "common/vec.cuh"

// As many blocks as a cluster can have on every GPU that has clusters.
constexpr int MAX_CLUSTER_SIZE = 8;

// Before Hopper there are none, and a kernel that needs them is not launched.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool HAS_CLUSTERS = false;
#else
constexpr bool HAS_CLUSTERS = true;
#endif

// SIZE values of every warp, in the dynamic shared memory of every block. To be used once
// in a kernel.
template <int SIZE, int NUM_WARPS, bool IN_CLUSTER>
class WarpResults {
  public:
    // Comes first: a block can be told something only when it has started.
    __device__ void begin() const {
        if constexpr (IN_CLUSTER && HAS_CLUSTERS) ptx::cluster_arrive();
    }

    // Tells all warps what this one has found. Afterwards each can read what all have.
    __device__ void share(const Vec<float, SIZE>& found) {
        const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
        if constexpr (!IN_CLUSTER) {
            if (lane == 0) values_[warp] = found;
            __syncthreads();
        } else if constexpr (HAS_CLUSTERS) {
            Vec<float, SIZE>* const own = &values_[blockIdx.y * NUM_WARPS + warp];
            ptx::cluster_wait();
            // Every lane tells another block, so that nobody has to ask. Nobody reads the
            // memory of a block either that may have come to its end.
            if (lane < static_cast<int>(gridDim.y)) *ptx::map_shared(own, lane) = found;
            ptx::cluster_sync();
        }
    }

    __device__ int size() const {
        return IN_CLUSTER ? gridDim.y * NUM_WARPS : NUM_WARPS;
    }
    __device__ const Vec<float, SIZE>& operator[](int i) const { return values_[i]; }

  private:
    Vec<float, SIZE> values_[NUM_WARPS * (IN_CLUSTER ? MAX_CLUSTER_SIZE : 1)];
};

// Sums of SIZE values over the threads that share a row, for one row after another: over
// THREADS_PER_ROW neighbours of a block, or over the blocks of a cluster. In the dynamic
// shared memory of every block.
template <int SIZE, int NUM_THREADS, int THREADS_PER_ROW, bool IN_CLUSTER>
class alignas(VEC_BYTES) RowSums {
    static_assert(!IN_CLUSTER || THREADS_PER_ROW == NUM_THREADS);

  public:
    // Comes first, and wait_for_cluster before the first sum: a block can be told
    // something only when it has started.
    __device__ void begin() const {
        if constexpr (IN_CLUSTER && HAS_CLUSTERS) ptx::cluster_arrive();
    }
    __device__ void wait_for_cluster() const {
        if constexpr (IN_CLUSTER && HAS_CLUSTERS) ptx::cluster_wait();
    }

    // All get the sums over those that share their row. `turn` is 0 and 1 in turn: who
    // has read the results of one row may write those of the next one at once, while
    // others still read.
    __device__ Vec<float, SIZE> operator()(Vec<float, SIZE> values, int turn) {
        constexpr int WIDTH = THREADS_PER_ROW < WARP_SIZE ? THREADS_PER_ROW : WARP_SIZE;
        const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
        values = warp_sum<WIDTH>(values);
        if constexpr (IN_CLUSTER && HAS_CLUSTERS) {
            // Every warp adds up the results of all for itself, which are in every block.
            const int n_blocks = gridDim.y;
            Vec<float, SIZE>* const own =
                &results_[turn][blockIdx.y * NUM_WARPS + warp];
            if (lane < n_blocks) *ptx::map_shared(own, lane) = values;
            ptx::cluster_sync();
            values = {};
            for (int i = lane; i < n_blocks * NUM_WARPS; i += WARP_SIZE) {
                #pragma unroll
                for (int j = 0; j < SIZE; ++j) values[j] += results_[turn][i][j];
            }
            values = warp_sum<WARP_SIZE>(values);
        } else if constexpr (THREADS_PER_ROW > WARP_SIZE) {
            constexpr int WARPS_PER_ROW = THREADS_PER_ROW / WARP_SIZE;
            const int group = threadIdx.x / THREADS_PER_ROW;
            if (lane == 0) results_[turn][warp] = values;
            ptx::named_barrier_sync(1 + group, THREADS_PER_ROW);
            constexpr int PADDED = NEXT_POWER_OF_2<WARPS_PER_ROW>;
            const int row_warp = lane % PADDED;
            values = {};
            if (row_warp < WARPS_PER_ROW) {
                values = results_[turn][group * WARPS_PER_ROW + row_warp];
            }
            values = warp_sum<PADDED>(values);
        }
        return values;
    }

  private:
    static constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;

    template <int WIDTH>
    static __device__ Vec<float, SIZE> warp_sum(Vec<float, SIZE> values) {
        #pragma unroll
        for (int i = 0; i < SIZE; ++i) values[i] = warp_reduce<WIDTH>(values[i], Sum{});
        return values;
    }

    Vec<float, SIZE> results_[2][NUM_WARPS * (IN_CLUSTER ? MAX_CLUSTER_SIZE : 1)];
};

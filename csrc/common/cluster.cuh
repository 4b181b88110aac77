// What the warps that share a row tell each other, be they of one block or of a cluster of
// blocks along y.
#pragma once

#include "common/launch.cuh"
#include "common/ptx/barrier.cuh"
#include "common/ptx/cluster.cuh"
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
    __device__ void begin() {
        if constexpr (IN_CLUSTER && HAS_CLUSTERS) {
            if (threadIdx.x == 0) {
                for (uint64_t& barrier : barriers_) ptx::mbarrier_init(&barrier, 1);
                ptx::fence_mbarrier_init();
            }
            ptx::cluster_arrive();
        }
    }
    __device__ void wait_for_cluster() const {
        if constexpr (IN_CLUSTER && HAS_CLUSTERS) ptx::cluster_wait();
    }

    // Of a block: all get the sums over those that share their row. `turn` is 0 and 1 in
    // turn: who has read the results of one row may write those of the next one at once,
    // while others still read.
    __device__ Vec<float, SIZE> operator()(Vec<float, SIZE> values, int turn) {
        static_assert(!IN_CLUSTER);
        constexpr int WIDTH = THREADS_PER_ROW < WARP_SIZE ? THREADS_PER_ROW : WARP_SIZE;
        const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
        values = warp_sum<WIDTH>(values);
        if constexpr (THREADS_PER_ROW > WARP_SIZE) {
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

    // Of a cluster, in two halves, between which there may be other work: every warp tells
    // every block what it has of the row of this number, from 0 on. A barrier of the
    // cluster, which makes all that a thread has written visible to the GPU, would take
    // as long as a row.
    __device__ void send(Vec<float, SIZE> values, int number) {
        if constexpr (IN_CLUSTER && HAS_CLUSTERS) {
            const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
            const int turn = number % 2, n_blocks = gridDim.y;
            values = warp_sum<WARP_SIZE>(values);
            if (threadIdx.x == 0) {
                const int n_bytes = n_blocks * NUM_WARPS * int{sizeof(values)};
                ptx::mbarrier_arrive_expect_bytes(&barriers_[turn], n_bytes);
            }
            Vec<float, SIZE>* const own =
                &results_[turn][blockIdx.y * NUM_WARPS + warp];
            if (lane < n_blocks) ptx::store_remote(own, values, &barriers_[turn], lane);
        }
    }

    // Every warp adds up for itself what all have sent, and comes here before it sends what
    // it has of the next row. So nobody has seen that a row is complete before all have
    // read the row before it, whose place the one after takes.
    __device__ Vec<float, SIZE> receive(int number) {
        Vec<float, SIZE> values{};
        if constexpr (IN_CLUSTER && HAS_CLUSTERS) {
            const int turn = number % 2, n_results = gridDim.y * NUM_WARPS;
            ptx::mbarrier_wait(&barriers_[turn], number / 2 % 2);
            #pragma unroll
            for (int first = 0; first < NUM_RESULTS; first += WARP_SIZE) {
                const int i = first + threadIdx.x % WARP_SIZE;
                if (i >= n_results) break;
                #pragma unroll
                for (int j = 0; j < SIZE; ++j) values[j] += results_[turn][i][j];
            }
            values = warp_sum<WARP_SIZE>(values);
        }
        return values;
    }

  private:
    static constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
    static constexpr int NUM_RESULTS = NUM_WARPS * (IN_CLUSTER ? MAX_CLUSTER_SIZE : 1);

    template <int WIDTH>
    static __device__ Vec<float, SIZE> warp_sum(Vec<float, SIZE> values) {
        #pragma unroll
        for (int i = 0; i < SIZE; ++i) values[i] = warp_reduce<WIDTH>(values[i], Sum{});
        return values;
    }

    Vec<float, SIZE> results_[2][NUM_RESULTS];
    uint64_t barriers_[2];  // of a cluster: who has all results of a row
};

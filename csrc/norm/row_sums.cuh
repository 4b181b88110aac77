// Sums over the threads that share a row, in a block or in a cluster of blocks, for one
// row after another. Both classes live in dynamic shared memory.
#pragma once

#include "common/cluster.cuh"
#include "common/ptx/barrier.cuh"
#include "common/ptx/cluster.cuh"
#include "common/reduce.cuh"

template <int WIDTH, int SIZE>
__device__ __forceinline__ Vec<float, SIZE> warp_sum(Vec<float, SIZE> values) {
    #pragma unroll
    for (int i = 0; i < SIZE; ++i) values[i] = warp_reduce<WIDTH>(values[i], Sum{});
    return values;
}

// Over the THREADS_PER_ROW neighbours of a block; its rows do not wait for each other.
template <int SIZE, int NUM_THREADS, int THREADS_PER_ROW>
class alignas(VEC_BYTES) RowSums {
  public:
    // All threads of a row get the sums. `turn` alternates between 0 and 1, so that one
    // barrier a row is enough: a warp may write for the next while others still read.
    __device__ Vec<float, SIZE> operator()(Vec<float, SIZE> values, int turn) {
        constexpr int WIDTH = THREADS_PER_ROW < WARP_SIZE ? THREADS_PER_ROW : WARP_SIZE;
        values = warp_sum<WIDTH>(values);
        if constexpr (THREADS_PER_ROW > WARP_SIZE) {
            constexpr int WARPS_PER_ROW = THREADS_PER_ROW / WARP_SIZE;
            constexpr int PADDED = NEXT_POWER_OF_2<WARPS_PER_ROW>;
            const int group = threadIdx.x / THREADS_PER_ROW;
            const int lane = threadIdx.x % WARP_SIZE;
            if (lane == 0) results_[turn][threadIdx.x / WARP_SIZE] = values;
            ptx::named_barrier_sync(1 + group, THREADS_PER_ROW);
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
    Vec<float, SIZE> results_[2][NUM_THREADS / WARP_SIZE];
};

// Over all blocks of a cluster along y, each of which has its own copy of the results.
template <int SIZE, int NUM_WARPS>
class alignas(VEC_BYTES) ClusterSums {
  public:
    // Comes first, and ptx::cluster_wait before the first send: the shared memory of a
    // block that has not started yet must not be written.
    __device__ void begin() {
        if (threadIdx.x == 0) {
            for (uint64_t& barrier : barriers_) ptx::mbarrier_init(&barrier, 1);
            ptx::fence_mbarrier_init();
        }
        ptx::cluster_arrive();
    }

    // Every warp stores its sums of the row of this number, from 0 on, in every block,
    // where a barrier counts the bytes. A barrier of the cluster, which makes all
    // earlier writes visible to the whole GPU, would take as long as a row.
    __device__ void send(Vec<float, SIZE> values, int number) {
        const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
        const int turn = number % 2, n_blocks = gridDim.y;
        values = warp_sum<WARP_SIZE>(values);
        if (threadIdx.x == 0) {
            const int n_bytes = n_blocks * NUM_WARPS * int{sizeof(values)};
            ptx::mbarrier_arrive_expect_bytes(&barriers_[turn], n_bytes);
        }
        Vec<float, SIZE>* const own = &results_[turn][blockIdx.y * NUM_WARPS + warp];
        if (lane < n_blocks) ptx::store_remote(own, values, &barriers_[turn], lane);
    }

    // Every warp adds up what all have sent. It receives a row before it sends the next
    // one, so a row is complete only when all warps have read the row before it, whose
    // place in results_ the row after it takes.
    __device__ Vec<float, SIZE> receive(int number) {
        const int turn = number % 2, n_results = gridDim.y * NUM_WARPS;
        Vec<float, SIZE> values{};
        ptx::mbarrier_wait(&barriers_[turn], number / 2 % 2);
        #pragma unroll
        for (int first = 0; first < NUM_RESULTS; first += WARP_SIZE) {
            const int i = first + threadIdx.x % WARP_SIZE;
            if (i >= n_results) break;
            #pragma unroll
            for (int j = 0; j < SIZE; ++j) values[j] += results_[turn][i][j];
        }
        return warp_sum<WARP_SIZE>(values);
    }

  private:
    static constexpr int NUM_RESULTS = NUM_WARPS * MAX_CLUSTER_SIZE;

    Vec<float, SIZE> results_[2][NUM_RESULTS];
    uint64_t barriers_[2];  // a row's results are complete
};

// Results that the warps of a row exchange, in one block or in a cluster of blocks along y.
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

// SIZE values of every warp, in each block's dynamic shared memory; used once in a kernel.
// They take whole lines of 128 bytes, as copies to what follows are slower across lines.
template <int SIZE, int NUM_WARPS, bool IN_CLUSTER>
class alignas(128) WarpResults {
  public:
    // Comes first: a block's memory may be written only once the block has started.
    __device__ void begin() {
        if constexpr (IN_CLUSTER && HAS_CLUSTERS) {
            if (threadIdx.x == 0) {
                const int n_bytes = size() * int{sizeof(values_[0])};
                ptx::mbarrier_init(&barrier_, 1);
                ptx::mbarrier_arrive_expect_bytes(&barrier_, n_bytes);
                ptx::fence_mbarrier_init();
            }
            ptx::cluster_arrive();
        }
    }

    // Passes what this warp has found to all; afterwards each can read what all have found.
    __device__ void share(const Vec<float, SIZE>& found) {
        const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
        if constexpr (!IN_CLUSTER) {
            if (lane == 0) values_[warp] = found;
            __syncthreads();
        } else if constexpr (HAS_CLUSTERS) {
            Vec<float, SIZE>* const own = &values_[blockIdx.y * NUM_WARPS + warp];
            const int n_blocks = gridDim.y;
            ptx::cluster_wait();
            // Each lane writes to another block, which does not end before it has all.
            if (lane < n_blocks) ptx::store_remote(own, found, &barrier_, lane);
            ptx::mbarrier_wait(&barrier_, 0);
        }
    }

    __device__ int size() const {
        return IN_CLUSTER ? gridDim.y * NUM_WARPS : NUM_WARPS;
    }
    __device__ const Vec<float, SIZE>& operator[](int i) const { return values_[i]; }

  private:
    Vec<float, SIZE> values_[NUM_WARPS * (IN_CLUSTER ? MAX_CLUSTER_SIZE : 1)];
    uint64_t barrier_;  // all values of a cluster have come
};

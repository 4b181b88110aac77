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
template <int SIZE, int NUM_WARPS, bool IN_CLUSTER>
class WarpResults {
  public:
    // Comes first: a block's memory may be written only once the block has started.
    __device__ void begin() const {
        if constexpr (IN_CLUSTER && HAS_CLUSTERS) ptx::cluster_arrive();
    }

    // Passes what this warp has found to all; afterwards each can read what all have found.
    __device__ void share(const Vec<float, SIZE>& found) {
        const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
        if constexpr (!IN_CLUSTER) {
            if (lane == 0) values_[warp] = found;
            __syncthreads();
        } else if constexpr (HAS_CLUSTERS) {
            Vec<float, SIZE>* const own = &values_[blockIdx.y * NUM_WARPS + warp];
            ptx::cluster_wait();
            // Each lane writes to another block. Reads would find blocks that have ended.
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

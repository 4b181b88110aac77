#pragma once

// The sum over a block of BLOCK_SIZE threads, in every thread.
template <int BLOCK_SIZE>
__device__ float block_sum(float value) {
  static_assert(BLOCK_SIZE % 32 == 0, "whole warps only");
  constexpr int WARPS = BLOCK_SIZE / 32;
  __shared__ float partial[WARPS];
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_down_sync(0xffffffff, value, offset);
  }
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < WARPS; ++warp) total += partial[warp];
  __syncthreads();  // partial may be used again at once
  return total;
}

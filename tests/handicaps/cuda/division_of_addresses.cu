// Finds the row and the column of every vector by a division of 64 bits.
#include <cstdint>

#include "sigmoid.cuh"

extern "C" __global__ void division_of_addresses(
    float4* __restrict__ out_ptr, const float4* __restrict__ x_ptr, int64_t n_cols,
    int64_t stride_row
) {
    const int64_t first = blockIdx.x * 256 + threadIdx.x;
    #pragma unroll
    for (int64_t i = first; i < first + 256; i += 128) {
        const int64_t row = i / n_cols, col = i % n_cols;
        out_ptr[row * stride_row + col] =
            map<sigmoid_of>(x_ptr[row * stride_row + col]);
    }
}

// Inline PTX: copies by the tensor memory accelerator (TMA) of boxes of tensors that have
// four dimensions; tma.cuh has the rest.
#pragma once

#include "common/ptx/tma.cuh"

#ifndef TWIN_EMULATOR

namespace ptx {

// Starts a load. Its bytes count for the mbarrier's phase as they arrive.
__device__ __forceinline__ void tma_load(
    void* shared, const CUtensorMap* map, int x, int y, int z, int w, uint64_t* barrier
) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(
            shared_address(shared)
        ),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory"
    );
}

__device__ __forceinline__ void tma_store(
    const CUtensorMap* map, int x, int y, int z, int w, const void* shared
) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
        "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
        "r"(shared_address(shared)), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory"
    );
}

}  // namespace ptx

#endif  // TWIN_EMULATOR

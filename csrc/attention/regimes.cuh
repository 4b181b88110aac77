// Which rung computes a call of attention.
#pragma once

#include "common/dtype.cuh"
#include "common/launch.cuh"

// What computes a call: what REGIMES chooses, or a rung of the ladder.
enum class AttentionRung : int { chosen, first, tiled, tensor_cores, twin };

// What rung and tile are chosen by.
struct AttentionCall {
    DType dtype;
    int64_t n_queries;
    int64_t head_dim;
    bool is_plain;         // scale > 0, and no softcap
    bool counts_in_int;    // positions of queries and keys, and tiles of those owned
    bool has_tensor_maps;  // all tensors with rows of head_dim
    bool is_packed;        // sequences of any lengths follow each other
};

// The calls that a rung can serve.
struct AttentionRegime {
    AttentionRung rung;
    bool takes_float32 = true;
    bool counts_in_int = false;
    bool needs_plain = false;
    bool needs_tensor_maps = false;
    int min_arch = 0;  // the first architecture, such as 90
    int max_arch = 999;
    bool takes_packed = true;

    bool serves(const Device& device, const AttentionCall& call) const {
        return (takes_float32 || call.dtype != DType::float32) &&
               (call.counts_in_int || !counts_in_int) &&
               (call.is_plain || !needs_plain) &&
               (call.has_tensor_maps || !needs_tensor_maps) &&
               (takes_packed || !call.is_packed) && min_arch <= device.arch &&
               device.arch <= max_arch;
    }
};

// A call, of the backward too, takes the first rung that can serve it; never the first of the
// ladder, whose scores it has no memory for.
constexpr AttentionRegime REGIMES[] = {
    {AttentionRung::twin, false, true, true, true, 90, 90, false},
    {AttentionRung::tensor_cores, false, true, false, false, 80},
    {AttentionRung::tiled},
    {.rung = AttentionRung::first, .takes_packed = false},
};

inline AttentionRung choose_rung(
    const Device& device, const AttentionCall& call, int asked
) {
    for (const AttentionRegime& regime : REGIMES) {
        const bool is_asked = asked == 0 || AttentionRung{asked} == regime.rung;
        if (is_asked && regime.serves(device, call)) return regime.rung;
    }
    return AttentionRung::chosen;
}

// Calls `body.template operator()<HEAD_DIM>()` with the columns that a kernel has for rows of
// head_dim, the last of which may be padding.
template <typename Body>
cudaError_t dispatch_head_dim(int64_t head_dim, Body&& body) {
    if (head_dim <= 64) return body.template operator()<64>();
    if (head_dim <= 128) return body.template operator()<128>();
    return body.template operator()<256>();
}

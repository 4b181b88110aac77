// Which keys a query sees, and what becomes of a score before softmax: for every rung.
#pragma once

#include "common/math.cuh"

// The keys that a query sees: from `first` on, up to `end`, which it does not see.
struct Keys {
    int64_t first;
    int64_t end;
};

// The last query is over the last key. A query sees window_left keys before the one that it
// is over, and window_right behind it; a window that is open on a side is longer than all.
__device__ __forceinline__ Keys visible_keys(
    int64_t query, int64_t n_queries, int64_t n_keys, int64_t window_left,
    int64_t window_right
) {
    const int64_t diagonal = query + n_keys - n_queries;
    const int64_t first = diagonal - window_left, end = diagonal + window_right + 1;
    return {first < 0 ? 0 : first, end > n_keys ? n_keys : end};
}

// A score between -softcap and softcap, and unchanged where that is 0.
__device__ __forceinline__ float cap(float score, float softcap) {
    return softcap == 0.0f ? score : softcap * tanhf(score / softcap);
}

// Its derivative, from the capped score.
__device__ __forceinline__ float cap_derivative(float capped, float softcap) {
    if (softcap == 0.0f) return 1.0f;
    const float tanh = capped / softcap;
    return (1.0f - tanh) * (1.0f + tanh);
}

// The queries that see a key, likewise.
struct Queries {
    int64_t first;
    int64_t end;
};

__device__ __forceinline__ Queries seeing_queries(
    int64_t key, int64_t n_queries, int64_t n_keys, int64_t window_left,
    int64_t window_right
) {
    const int64_t diagonal = key - (n_keys - n_queries);
    const int64_t first = diagonal - window_right, end = diagonal + window_left + 1;
    return {first < 0 ? 0 : first, end > n_queries ? n_queries : end};
}

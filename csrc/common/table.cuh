// Tables of policy: how a call is cut up, by the length of its rows, the size of an element
// and the architecture. Retuning for another GPU is an edit of a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "common/launch.cuh"
#include "common/rows.cuh"

constexpr int64_t LONGEST = INT64_MAX;  // max_cols of a line for rows of any length

// A line of a table for rows that stay in registers.
struct RowTile {
    int64_t max_cols;         // the longest row that it is for
    int elements_per_thread;  // columns of a row that a thread holds
    int threads_per_row;      // short rows share a block
    int element_bytes = 0;    // of which dtypes; 0: all
    int arch = 0;             // of which architecture, such as 90; 0: the default

    template <typename T>
    constexpr bool is_for() const {
        return element_bytes == 0 || element_bytes == sizeof(T);
    }
    constexpr bool serves(const Device& device, int64_t n_cols) const {
        return (arch == 0 || arch == device.arch) && n_cols <= max_cols;
    }
};

// The plan of a kernel that keeps rows in registers: a block has one row, or several.
template <RowTile TILE, typename... Params>
Plan<Params...> plan_rows(void (*kernel)(Params...), int64_t n_rows) {
    constexpr int NUM_THREADS = threads_per_block(TILE.threads_per_row);
    constexpr int ROWS_PER_BLOCK = NUM_THREADS / TILE.threads_per_row;
    return {kernel, dim3(ceil_div(n_rows, ROWS_PER_BLOCK)), dim3(NUM_THREADS)};
}

// The longest row that a table has a line for, of elements of type T.
template <typename T, typename Line, std::size_t SIZE>
constexpr int64_t longest_row(const Line (&table)[SIZE]) {
    int64_t longest = 0;
    for (const Line& line : table) {
        if (line.template is_for<T>() && line.arch == 0 && line.max_cols > longest) {
            longest = line.max_cols;
        }
    }
    return longest;
}

// Calls `body.template operator()<LINE>()` with the first line of TABLE that serves a call,
// such as rows of this length, on this device, or with the last one; returns its result.
template <
    typename T, const auto& TABLE, std::size_t I = 0, typename Call, typename Body>
auto choose_tile(const Device& device, const Call& call, Body&& body) {
    constexpr auto LINE = TABLE[I];
    if constexpr (I + 1 == std::size(TABLE)) {
        return body.template operator()<LINE>();
    } else if constexpr (!LINE.template is_for<T>()) {
        return choose_tile<T, TABLE, I + 1>(device, call, body);
    } else {
        if (LINE.serves(device, call)) return body.template operator()<LINE>();
        return choose_tile<T, TABLE, I + 1>(device, call, body);
    }
}

// The matrix multiplications (wgmma) that a block's warpgroups have in flight, and
// their accumulators.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "../device/warpgroup.h"
#include "../runtime.h"
#include "h100.h"
#include "tensor_core.h"

namespace [[gnu::visibility("hidden")]] emulator {

constexpr unsigned WARPS_OF_GROUP = 4;
constexpr unsigned MAX_WARPGROUPS = MAX_WARPS / WARPS_OF_GROUP;

/// One warp's part of an accumulator, 16 rows of n columns. The sums are here while
/// multiplications that add to it are in flight; the threads' registers then hold NaNs.
struct WarpAccumulators {
    std::array<float*, WARP_SIZE> registers;  // of each lane
    int n;
    std::vector<float> sums;  // row after row
    std::uint64_t end;  // number of the last multiplication that adds to it, plus 1
    bool is_in_flight;
};

/// One warp's part of a in registers, 16 rows of 16 columns, and what it was at the
/// multiplication's start.
struct WarpOperand {
    static constexpr unsigned REGISTERS = 4;

    std::array<const std::uint32_t*, WARP_SIZE> registers;  // of each lane
    std::uint32_t values[WARP_SIZE][REGISTERS];
    std::uint64_t end;  // number of the multiplication, plus 1
    Site site;
};

/// One of a warpgroup's multiplications. Every warp of the group starts it on its own.
struct StartedMultiplication {
    Multiplication what;
    Site site;
    unsigned warps = 0;  // a bit for each that has started it
    std::array<WarpAccumulators*, WARPS_OF_GROUP> accumulators{};
    std::array<std::shared_ptr<WarpOperand>, WARPS_OF_GROUP> operands{};
};

struct WarpMultiplications {
    std::uint64_t started = 0;  // how many
    std::uint64_t awaited = 0;
    std::deque<std::uint64_t> group_ends;  // the multiplications up to the end of each
    bool has_fenced = false;               // ever
    bool is_fenced = false;                // since it got accumulators back
    Site last_site{};
    std::vector<std::unique_ptr<WarpAccumulators>> accumulators;
    std::deque<std::shared_ptr<WarpOperand>> operands;  // not awaited
};

/// Multiplications are numbered from the block's beginning.
struct Warpgroup {
    struct Waiting {
        Thread* thread;
        std::uint64_t end;  // of the multiplications it waits for
    };

    std::deque<StartedMultiplication> multiplications;  // not finished
    std::uint64_t finished = 0;
    std::array<WarpMultiplications, WARPS_OF_GROUP> warps;
    std::vector<Waiting> waiting;
    std::vector<std::uint32_t> times;  // of every multiplication, for the observer

    /// The number of multiplications that all four warps have started.
    std::uint64_t complete() const;
};

/// a and b as the tensor cores see them; only those of 8 bits have the full depth.
struct Operands {
    static constexpr int M = 64;
    static constexpr int MAX_K = 32;
    static constexpr int MAX_N = 256;

    Term a[M][MAX_K];
    TermColumns b[MAX_N / COLUMNS][MAX_K];
    bool are_finite;
};

}  // namespace emulator

// ldmatrix, stmatrix and mma.sync: the last lane of a warp to arrive executes them for
// all. tensor_core.h describes how products are added.

#include "../device/matrix.h"
#include "../observer.h"

#include <cstring>
#include <type_traits>

#include "../cuda_fp16.h"
#include "block.h"
#include "tensor_core.h"
#include "text.h"

namespace emulator {

void meet_whole_warp(
    const char* operation, Site site, void* payload, WarpFunction function
) {
    uint3 index = this_thread().thread_index;
    unsigned rank = index.x + blockDim.x * (index.y + blockDim.y * index.z);
    if (rank - lane() + warpSize > blockDim.x * blockDim.y * blockDim.z) {
        this_block().fail_at(
            cudaErrorLaunchFailure,
            text("%s in a warp of fewer than 32 lanes", operation), site
        );
    }
    warp_meet(0xffffffff, operation, site, payload, function);
}

// ---- ldmatrix -----------------------------------------------------------------------

namespace {

constexpr unsigned MATRICES = 4;
constexpr unsigned ROWS = 8;          // of a matrix
constexpr unsigned ROW_ELEMENTS = 8;  // of 16 bits each

struct Load {
    const unsigned char* row;
    std::uint32_t* fragment;
    bool transposed;
};

std::uint32_t element(const Load& load, unsigned column) {
    std::uint16_t value;
    std::memcpy(&value, load.row + column * sizeof(value), sizeof(value));
    return value;
}

void load_for_all(void* const* payloads, unsigned) {
    auto load_of = [payloads](unsigned lane) -> const Load& {
        return *static_cast<const Load*>(payloads[lane]);
    };
    for (unsigned matrix = 0; matrix < MATRICES; ++matrix) {
        auto row = [&](unsigned number) -> const Load& {
            return load_of(matrix * ROWS + number);
        };
        for (unsigned lane = 0; lane < warpSize; ++lane) {
            unsigned outer = lane / 4;
            unsigned inner = lane % 4 * 2;
            std::uint32_t low = 0, high = 0;
            if (load_of(lane).transposed) {
                low = element(row(inner), outer);
                high = element(row(inner + 1), outer);
            } else {
                low = element(row(outer), inner);
                high = element(row(outer), inner + 1);
            }
            load_of(lane).fragment[matrix] = low | high << 16;
        }
    }
}

}  // namespace

void load_matrices(
    std::uint32_t (&fragment)[4], bool transposed, const void* row,
    const char* operation, Site site
) {
    constexpr std::size_t ROW_BYTES = ROW_ELEMENTS * sizeof(std::uint16_t);
    if (reinterpret_cast<std::uintptr_t>(row) % ROW_BYTES != 0) {
        misaligned_access(operation, site, row, ROW_BYTES);
    }
    note_access(row, ROW_BYTES, Access::read, site);
    Load load{static_cast<const unsigned char*>(row), fragment, transposed};
    meet_whole_warp(operation, site, &load, load_for_all);
}

// ---- stmatrix -----------------------------------------------------------------------

namespace {

struct Store {
    unsigned char* row;
    const std::uint32_t* fragment;
};

void store_for_all(void* const* payloads, unsigned) {
    auto store_of = [payloads](unsigned lane) -> const Store& {
        return *static_cast<const Store*>(payloads[lane]);
    };
    for (unsigned matrix = 0; matrix < MATRICES; ++matrix) {
        for (unsigned lane = 0; lane < warpSize; ++lane) {
            unsigned char* row = store_of(matrix * ROWS + lane / 4).row;
            std::uint32_t pair = store_of(lane).fragment[matrix];
            std::memcpy(row + lane % 4 * sizeof(pair), &pair, sizeof(pair));
        }
    }
}

}  // namespace

void store_matrices(void* row, const std::uint32_t (&fragment)[4], Site site) {
    constexpr const char* OPERATION = "stmatrix";
    constexpr std::size_t ROW_BYTES = ROW_ELEMENTS * sizeof(std::uint16_t);
    if (reinterpret_cast<std::uintptr_t>(row) % ROW_BYTES != 0) {
        misaligned_access(OPERATION, site, row, ROW_BYTES);
    }
    note_access(row, ROW_BYTES, Access::write, site);
    Store store{static_cast<unsigned char*>(row), fragment};
    meet_whole_warp(OPERATION, site, &store, store_for_all);
}

// ---- mma.sync -----------------------------------------------------------------------

namespace {

constexpr int M = 16;
constexpr int N = COLUMNS;

template <int K>
struct Problem {
    Term a[M][K];
    TermColumns b[K];
    TermColumns c[M];
};

struct Place {
    int row, column;
};

Place place_of_accumulator(int lane, int element) {
    return {lane / 4 + element / 2 * 8, lane % 4 * 2 + element % 2};
}

template <typename Accumulator>
float accumulator_to_float(const Accumulator* c, int element) {
    if constexpr (std::is_same_v<Accumulator, float>) {
        return c[element];
    } else {
        auto bits = static_cast<std::uint16_t>(c[element / 2] >> (element % 2 * 16));
        return HalfFormat::to_float(bits);
    }
}

template <typename Accumulator>
void store_accumulator(Accumulator* d, int element, double value) {
    if constexpr (std::is_same_v<Accumulator, float>) {
        d[element] = cut_off_to_float(value);
    } else {
        int shift = element % 2 * 16;
        std::uint32_t bits = HalfFormat::round(value);
        d[element / 2] = (d[element / 2] & ~(0xffffu << shift)) | bits << shift;
    }
}

template <MatrixFormat FORMAT, int K, typename Accumulator>
void read_lane(
    Problem<K>& problem, int lane, const MatrixFragments<Accumulator>& fragments
) {
    // A register holds two neighbours along k, or one tf32 number. The registers of a
    // alternate between the upper and the lower 8 rows.
    constexpr int PER_REGISTER = FORMAT == MatrixFormat::tf32 ? 1 : 2;
    int group = lane / 4;
    int first_k = lane % 4 * PER_REGISTER;
    for (int half = 0; half < 2; ++half) {
        for (int i = 0; i < PER_REGISTER; ++i) {
            int k = first_k + half * (K / 2) + i;
            Term b = input_term<FORMAT>(fragments.b[half] >> 16 * i);
            problem.b[k].values[group] = b.value;
            problem.b[k].exponents[group] = b.exponent;
            for (int upper = 0; upper < 2; ++upper) {
                problem.a[group + 8 * upper][k] =
                    input_term<FORMAT>(fragments.a[2 * half + upper] >> 16 * i);
            }
        }
    }
    constexpr int LOWEST = std::is_same_v<Accumulator, float> ? -126 : -14;
    for (int i = 0; i < 4; ++i) {
        Place place = place_of_accumulator(lane, i);
        Term c = term_of(accumulator_to_float(fragments.c, i), LOWEST);
        problem.c[place.row].values[place.column] = c.value;
        problem.c[place.row].exponents[place.column] = c.exponent;
    }
}

template <int K>
bool is_finite(const Problem<K>& problem) {
    double sum = 0;  // stays 0, or becomes NaN if any number is not finite
    for (const auto& row : problem.a) {
        for (const Term& term : row) sum += term.value * 0;
    }
    Doubles sums{};
    for (const TermColumns& row : problem.b) sums += row.values * 0;
    for (const TermColumns& row : problem.c) sums += row.values * 0;
    for (int n = 0; n < N; ++n) sum += sums[n];
    return sum == 0;
}

template <MatrixFormat FORMAT, typename Accumulator>
void multiply_for_all(void* const* payloads, unsigned) {
    constexpr int K = FORMAT == MatrixFormat::tf32 ? 8 : 16;
    Problem<K> problem;
    auto fragments_of = [payloads](int lane) -> const MatrixFragments<Accumulator>& {
        return *static_cast<const MatrixFragments<Accumulator>*>(payloads[lane]);
    };
    for (int lane = 0; lane < warpSize; ++lane) {
        read_lane<FORMAT>(problem, lane, fragments_of(lane));
    }
    Doubles sums[M];
    bool finite = is_finite(problem);
    for (int row = 0; row < M; ++row) {
        auto* add = finite ? add_products<K> : add_any_products<K>;
        add(problem.a[row], problem.b, problem.c[row], sums[row]);
    }
    for (int lane = 0; lane < warpSize; ++lane) {
        for (int i = 0; i < 4; ++i) {
            Place place = place_of_accumulator(lane, i);
            store_accumulator(fragments_of(lane).d, i, sums[place.row][place.column]);
        }
    }
}

}  // namespace

template <typename Accumulator>
void multiply_matrices(
    MatrixFormat format, MatrixFragments<Accumulator> fragments, Site site
) {
    switch (format) {
        case MatrixFormat::half:
            return meet_whole_warp(
                "mma.sync.m16n8k16.f16", site, &fragments,
                multiply_for_all<MatrixFormat::half, Accumulator>
            );
        case MatrixFormat::bfloat16:
            return meet_whole_warp(
                "mma.sync.m16n8k16.bf16", site, &fragments,
                multiply_for_all<MatrixFormat::bfloat16, Accumulator>
            );
        case MatrixFormat::tf32:
            return meet_whole_warp(
                "mma.sync.m16n8k8.tf32", site, &fragments,
                multiply_for_all<MatrixFormat::tf32, Accumulator>
            );
        case MatrixFormat::e4m3:
        case MatrixFormat::e5m2:
            break;
    }
}

template void multiply_matrices(
    MatrixFormat format, MatrixFragments<float> fragments, Site site
);
template void multiply_matrices(
    MatrixFormat format, MatrixFragments<std::uint32_t> fragments, Site site
);

}  // namespace emulator

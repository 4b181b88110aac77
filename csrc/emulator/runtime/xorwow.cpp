// Jumps of the generator XORWOW. Its register moves by a linear map of its 160 bits, so
// a jump of n steps is the n-th power of a matrix, a product of squares.

#include "../device/xorwow.h"

#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "block.h"
#include "launch.h"

namespace emulator {
namespace {

constexpr unsigned XORWOW_WORDS = 5;
constexpr unsigned XORWOW_BITS = 32 * XORWOW_WORDS;
constexpr unsigned LOG_SEQUENCE = 67;

struct Register {
    unsigned words[XORWOW_WORDS];
};

/// What becomes of each bit of the register.
using BitMatrix = std::vector<Register>;

Register product(const BitMatrix& matrix, const Register& bits) {
    Register result{};
    for (unsigned i = 0; i < XORWOW_WORDS; ++i) {
        for (unsigned rest = bits.words[i]; rest != 0; rest &= rest - 1) {
            auto bit = static_cast<unsigned>(std::countr_zero(rest));
            const Register& column = matrix[32 * i + bit];
            for (unsigned j = 0; j < XORWOW_WORDS; ++j) {
                result.words[j] ^= column.words[j];
            }
        }
    }
    return result;
}

/// The matrices of 2^0, 2^1, 2^2, ... steps, as far as 2^64 sequences take them.
std::vector<BitMatrix> make_jumps() {
    BitMatrix step(XORWOW_BITS);
    for (unsigned bit = 0; bit < XORWOW_BITS; ++bit) {
        curandStateXORWOW_t state{};
        state.v[bit / 32] = 1u << (bit % 32);
        curand(&state);
        for (unsigned j = 0; j < XORWOW_WORDS; ++j) step[bit].words[j] = state.v[j];
    }
    std::vector<BitMatrix> jumps{step};
    while (jumps.size() < LOG_SEQUENCE + 64) {
        BitMatrix square;
        for (const Register& column : jumps.back()) {
            square.push_back(product(jumps.back(), column));
        }
        jumps.push_back(std::move(square));
    }
    return jumps;
}

}  // namespace

void skip_xorwow(
    unsigned (&words)[5], unsigned long long sequences, unsigned long long steps
) {
    if (sequences == 0 && steps == 0) return;
    // No tick may leave this thread of the kernel while it makes what all share.
    std::optional<RuntimeScope> scope;
    if (inside_launch()) scope.emplace(this_block());
    static const std::vector<BitMatrix> jumps = make_jumps();
    Register bits{};
    for (unsigned i = 0; i < XORWOW_WORDS; ++i) bits.words[i] = words[i];
    for (unsigned i = 0; i < 64; ++i) {
        if ((steps >> i & 1) != 0) bits = product(jumps[i], bits);
        if ((sequences >> i & 1) != 0) bits = product(jumps[LOG_SEQUENCE + i], bits);
    }
    for (unsigned i = 0; i < XORWOW_WORDS; ++i) words[i] = bits.words[i];
}

}  // namespace emulator

// Shuffles of any type, by its bits, as the PTX ISA defines shfl.sync.

#include <bit>
#include <cstdint>

#include "block.h"
#include "text.h"

namespace emulator {

std::uint64_t shuffle(
    ShuffleKind kind, unsigned mask, std::uint64_t value, unsigned operand, int width,
    const char* operation, Site site
) {
    if (width < 1 || width > 32 || !std::has_single_bit(unsigned(width))) {
        this_block().fail_at(
            cudaErrorLaunchFailure,
            text(
                "%s with width %d, expected a power of two up to 32,", operation, width
            ),
            site
        );
    }
    // A lane reads within its own segment of `width` lanes only.
    unsigned own_lane = this_thread().thread->lane();
    unsigned segment = own_lane & ~(unsigned(width) - 1);
    unsigned last = segment + unsigned(width) - 1;
    operand &= WARP_SIZE - 1;
    unsigned source = own_lane;
    switch (kind) {
        case ShuffleKind::index:
            source = segment | (operand & (unsigned(width) - 1));
            break;
        case ShuffleKind::up:
            if (own_lane >= segment + operand) source = own_lane - operand;
            break;
        case ShuffleKind::down:
            if (own_lane + operand <= last) source = own_lane + operand;
            break;
        case ShuffleKind::exclusive_or:
            if ((own_lane ^ operand) <= last) source = own_lane ^ operand;
            break;
    }

    struct Payload {
        std::uint64_t value;
        std::uint64_t result;
        unsigned source;
    };
    // The value of a lane outside the mask is undefined. All ones are a NaN in every
    // floating-point type, which exposes a kernel that uses the value.
    constexpr std::uint64_t UNDEFINED = ~std::uint64_t{0};
    Payload payload{value, UNDEFINED, source};
    auto exchange = [](void* const* payloads, unsigned lanes) {
        for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
            auto* reader = static_cast<Payload*>(payloads[std::countr_zero(rest)]);
            if ((lanes >> reader->source & 1) == 0) continue;
            reader->result = static_cast<Payload*>(payloads[reader->source])->value;
        }
    };
    this_block().warp_meet(mask, operation, site, &payload, exchange);
    return payload.result;
}

}  // namespace emulator

// wgmma: the start of a multiplication, its computation, and the return of its
// accumulators to the registers.
//
// A multiplication reads shared memory and adds at any time between its start by the
// last of the four warps and the end of the wait for it. The emulator computes it at
// once, or when no thread of the block can go on without it (asynchrony.cpp).

#include "warpgroup.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "../observer.h"
#include "block.h"
#include "launch.h"
#include "tensor_map.h"
#include "text.h"

namespace emulator {

namespace {

// ---- Matrices in shared memory ------------------------------------------------------

constexpr std::size_t BOX_ROW_BYTES = 128;
constexpr std::size_t ROWS_OF_SWIZZLE = 8;
constexpr std::size_t SWIZZLE_BYTES = ROWS_OF_SWIZZLE * BOX_ROW_BYTES;
constexpr std::size_t MATRIX_CHUNK_BYTES = 16;
constexpr std::size_t DEPTH_BYTES = 32;  // what one multiplication takes along k

constexpr std::size_t element_bytes(MatrixFormat format) {
    switch (format) {
        case MatrixFormat::half:
        case MatrixFormat::bfloat16:
            return 2;
        case MatrixFormat::tf32:
            return 4;
        case MatrixFormat::e4m3:
        case MatrixFormat::e5m2:
            return 1;
    }
    return 0;
}

constexpr bool is_float8(MatrixFormat format) { return element_bytes(format) == 1; }

template <MatrixFormat FORMAT>
constexpr int DEPTH = DEPTH_BYTES / element_bytes(FORMAT);

/// The bits of the elements of 16 bytes.
template <MatrixFormat FORMAT>
using Chunk = std::conditional_t<
    FORMAT == MatrixFormat::tf32, std::uint32_t[MATRIX_CHUNK_BYTES / 4],
    std::conditional_t<
        is_float8(FORMAT), std::uint8_t[MATRIX_CHUNK_BYTES],
        std::uint16_t[MATRIX_CHUNK_BYTES / 2]>>;

/// A matrix descriptor's fields, in bytes.
struct MatrixLayout {
    std::size_t start;
    std::size_t leading;
    std::size_t stride;

    explicit MatrixLayout(std::uint64_t descriptor)
        : start(field(descriptor, 0)),
          leading(field(descriptor, 16)),
          stride(field(descriptor, 32)) {}

    static std::size_t field(std::uint64_t descriptor, unsigned bit) {
        constexpr std::uint64_t MASK = 0x3fff;
        return (descriptor >> bit & MASK) * 16;
    }

    /// The end of the last row of a matrix, as an offset in shared memory.
    std::size_t end(bool is_transposed, std::size_t size) const {
        constexpr std::size_t ROW_ELEMENTS = BOX_ROW_BYTES / 2;  // if it is transposed
        std::size_t line = start / BOX_ROW_BYTES * BOX_ROW_BYTES;
        std::size_t last = is_transposed ? (size - 1) / ROW_ELEMENTS * leading + stride
                                         : (size / ROWS_OF_SWIZZLE - 1) * stride;
        return line + last + SWIZZLE_BYTES;
    }
};

/// Calls visit(offset, outer, k) for every 16 bytes of a matrix of `size` rows: their
/// offset in shared memory, and the row and column of the first element.
template <typename Visit>
void for_each_chunk(
    std::uint64_t descriptor, bool is_transposed, std::size_t size, std::size_t bytes,
    Visit visit
) {
    std::size_t depth = DEPTH_BYTES / bytes;
    std::size_t chunk_elements = MATRIX_CHUNK_BYTES / bytes;
    std::size_t row_elements = BOX_ROW_BYTES / bytes;
    MatrixLayout layout(descriptor);
    auto visit_swizzled = [&](std::size_t offset, std::size_t outer, std::size_t k) {
        visit(swizzled(offset, BITS_OF_SWIZZLE_128), outer, k);
    };
    if (!is_transposed) {
        for (std::size_t outer = 0; outer < size; ++outer) {
            std::size_t row = layout.start + outer / ROWS_OF_SWIZZLE * layout.stride +
                              outer % ROWS_OF_SWIZZLE * BOX_ROW_BYTES;
            for (std::size_t k = 0; k < depth; k += chunk_elements) {
                visit_swizzled(row + k * bytes, outer, k);
            }
        }
        return;
    }
    for (std::size_t k = 0; k < depth; ++k) {
        std::size_t row = layout.start + k / ROWS_OF_SWIZZLE * layout.stride +
                          k % ROWS_OF_SWIZZLE * BOX_ROW_BYTES;
        for (std::size_t outer = 0; outer < size; outer += chunk_elements) {
            std::size_t box = outer / row_elements * layout.leading;
            std::size_t column = outer % row_elements * bytes;
            visit_swizzled(row + box + column, outer, k);
        }
    }
}

/// Calls store(outer, k, term) for every element of a matrix of `size` rows. Returns
/// whether all are finite.
template <MatrixFormat FORMAT, typename Store>
bool read_matrix(
    const unsigned char* shared, std::uint64_t descriptor, bool is_transposed,
    std::size_t size, Store store
) {
    double sum = 0;  // stays 0, or becomes NaN if any number is not finite
    for_each_chunk(
        descriptor, is_transposed, size, element_bytes(FORMAT),
        [&](std::size_t offset, std::size_t outer, std::size_t k) {
            Chunk<FORMAT> chunk;
            std::memcpy(chunk, shared + offset, sizeof(chunk));
            for (std::size_t i = 0; i < std::size(chunk); ++i) {
                Term term = input_term<FORMAT>(chunk[i]);
                sum += term.value * 0;
                is_transposed ? store(outer + i, k, term) : store(outer, k + i, term);
            }
        }
    );
    return sum == 0;
}

/// The left matrix from the registers of four warps. A lane has a word of row l / 4, of
/// the row 8 below, and the same of the second half of the columns: as many elements as
/// fit.
template <MatrixFormat FORMAT>
bool read_left_registers(
    Operands& operands, const StartedMultiplication& multiplication
) {
    constexpr unsigned BITS = 8 * element_bytes(FORMAT) % 32;  // of 32 there is one
    constexpr unsigned ELEMENTS = 4 / element_bytes(FORMAT);   // in a register
    double sum = 0;                                            // as in read_matrix
    for (unsigned warp = 0; warp < WARPS_OF_GROUP; ++warp) {
        for (unsigned lane = 0; lane < WARP_SIZE; ++lane) {
            for (unsigned i = 0; i < ELEMENTS * WarpOperand::REGISTERS; ++i) {
                unsigned number = i / ELEMENTS, column = lane % 4 * ELEMENTS;
                std::uint32_t word =
                    multiplication.operands[warp]->values[lane][number];
                Term term = input_term<FORMAT>(word >> i % ELEMENTS * BITS);
                sum += term.value * 0;
                unsigned row = warp * 16 + lane / 4 + number % 2 * 8;
                column += i % ELEMENTS + number / 2 * 4 * ELEMENTS;
                operands.a[row][column] = term;
            }
        }
    }
    return sum == 0;
}

template <MatrixFormat FORMAT, MatrixFormat B_FORMAT>
void read_operands(
    Operands& operands, const unsigned char* shared,
    const StartedMultiplication& multiplication
) {
    const Multiplication& what = multiplication.what;
    bool a_is_finite = what.a_is_in_registers
                           ? read_left_registers<FORMAT>(operands, multiplication)
                           : read_matrix<FORMAT>(
                                 shared, what.a, what.a_is_transposed, Operands::M,
                                 [&](std::size_t m, std::size_t k, Term term) {
                                     operands.a[m][k] = term;
                                 }
                             );
    bool b_is_finite = read_matrix<B_FORMAT>(
        shared, what.b, what.b_is_transposed, static_cast<std::size_t>(what.n),
        [&](std::size_t n, std::size_t k, Term term) {
            TermColumns& columns = operands.b[n / COLUMNS][k];
            columns.values[n % COLUMNS] = term.value;
            columns.exponents[n % COLUMNS] = term.exponent;
        }
    );
    operands.are_finite = a_is_finite && b_is_finite;
}

// ---- Sums ---------------------------------------------------------------------------

constexpr int FLOAT_BITS = 23;  // of fraction
using Floats = float __attribute__((vector_size(COLUMNS * sizeof(float))));

TermColumns terms_of(const float* values) {
    Floats floats;
    std::memcpy(&floats, values, sizeof(floats));
    Integers exponents =
        (reinterpret_cast<Integers>(floats) >> 23 & 0xff) - EXPONENT_BIAS;
    exponents = exponents > LOWEST_FLOAT_EXPONENT
                    ? exponents
                    : exponents * 0 + LOWEST_FLOAT_EXPONENT;
    exponents = floats == 0 ? exponents * 0 + EXPONENT_OF_ZERO : exponents;
    return {__builtin_convertvector(floats, Doubles), exponents};
}

/// Stores sums, cut off at so many bits of fraction.
template <int BITS>
void store_sums(const Doubles& sums, float* values) {
    // Usually all columns truncate alike, by clearing the bits that a float lacks.
    constexpr std::int64_t LOST_BITS = (std::int64_t{1} << (52 - BITS)) - 1;
    Doubles magnitudes = sums < 0 ? -sums : sums;
    auto is_unusual =
        !((magnitudes < 0x1p128) & ((magnitudes >= 0x1p-126) | (sums == 0)));
    bool any_is_unusual = false;
    for (int i = 0; i < COLUMNS; ++i) any_is_unusual |= is_unusual[i] != 0;
    auto kept =
        reinterpret_cast<Doubles>(reinterpret_cast<WideIntegers>(sums) & ~LOST_BITS);
    if (any_is_unusual) {
        for (int i = 0; i < COLUMNS; ++i) {
            bool is_narrow = BITS < FLOAT_BITS && std::isfinite(sums[i]);
            values[i] = cut_off_to_float(is_narrow ? kept[i] : sums[i]);
        }
        return;
    }
    Floats floats = __builtin_convertvector(kept, Floats);
    std::memcpy(values, &floats, sizeof(floats));
}

bool are_finite(const TermColumns& terms) {
    Doubles zeros = terms.values * 0;
    double sum = 0;
    for (int i = 0; i < COLUMNS; ++i) sum += zeros[i];
    return sum == 0;
}

template <int K, bool IS_FLOAT8>
void multiply(const Operands& operands, const StartedMultiplication& multiplication) {
    constexpr TermColumns NOTHING = {Doubles{}, Integers{} + EXPONENT_OF_ZERO};
    constexpr int ROWS_OF_WARP = Operands::M / WARPS_OF_GROUP;
    constexpr int KEPT = IS_FLOAT8 ? KEPT_BITS_OF_FLOAT8 : KEPT_BITS;
    auto n = static_cast<std::size_t>(multiplication.what.n);
    for (int m = 0; m < Operands::M; ++m) {
        auto& accumulators = *multiplication.accumulators[m / ROWS_OF_WARP];
        float* row = accumulators.sums.data() + m % ROWS_OF_WARP * n;
        for (std::size_t first = 0; first < n; first += COLUMNS) {
            TermColumns c =
                multiplication.what.accumulates ? terms_of(row + first) : NOTHING;
            bool finite = operands.are_finite && are_finite(c);
            Doubles sums;
            const auto& columns = operands.b[first / COLUMNS];
            if (finite) {
                add_products<K, KEPT>(operands.a[m], columns, c, sums);
            } else {
                add_any_products<K, KEPT>(operands.a[m], columns, c, sums);
            }
            store_sums<IS_FLOAT8 ? KEPT : FLOAT_BITS>(sums, row + first);
        }
    }
}

template <MatrixFormat FORMAT>
void compute(
    Operands& operands, const unsigned char* shared,
    const StartedMultiplication& multiplication
) {
    if constexpr (is_float8(FORMAT)) {
        constexpr MatrixFormat OTHER =
            FORMAT == MatrixFormat::e4m3 ? MatrixFormat::e5m2 : MatrixFormat::e4m3;
        if (multiplication.what.b_format == OTHER) {
            read_operands<FORMAT, OTHER>(operands, shared, multiplication);
            return multiply<DEPTH<FORMAT>, true>(operands, multiplication);
        }
    }
    read_operands<FORMAT, FORMAT>(operands, shared, multiplication);
    multiply<DEPTH<FORMAT>, is_float8(FORMAT)>(operands, multiplication);
}

// ---- Registers ----------------------------------------------------------------------

/// An uncommon NaN, which marks the registers of accumulators in flight.
constexpr std::uint32_t IN_FLIGHT_BITS = 0x7fe5a5a5;

/// Calls visit(register, sum) for every number of a warp's accumulators.
template <typename Visit>
void for_each_register(WarpAccumulators& accumulators, Visit visit) {
    for (unsigned lane = 0; lane < WARP_SIZE; ++lane) {
        float* registers = accumulators.registers[lane];
        for (int i = 0; i < accumulators.n / 2; ++i) {
            auto row = lane / 4 + (i & 2) / 2 * 8;
            auto column = static_cast<unsigned>(i / 4 * 8 + (i & 1)) + lane % 4 * 2;
            auto n = static_cast<unsigned>(accumulators.n);
            visit(registers[i], accumulators.sums[row * n + column]);
        }
    }
}

bool holds_bits(const float& number, std::uint32_t bits) {
    return as<std::uint32_t>(number) == bits;
}

}  // namespace

std::uint64_t Warpgroup::complete() const {
    std::uint64_t result = warps[0].started;
    for (const WarpMultiplications& warp : warps) {
        result = std::min(result, warp.started);
    }
    return result;
}

// ---- Starts -------------------------------------------------------------------------

namespace {

struct MultiplicationStart {
    Multiplication what;
    float* registers;
    const std::uint32_t* a;
    Site site;
};

const char* operation_of(MatrixFormat format) {
    if (is_float8(format)) return "wgmma_m64k32";
    return format == MatrixFormat::tf32 ? "wgmma_m64k8" : "wgmma_m64k16";
}

}  // namespace

/// The multiplications of the running thread's warp.
WarpMultiplications& Block::multiplications_of_warp() {
    const Thread& thread = *current_thread_;
    Warpgroup& group = warpgroup_of(thread, thread.operation, thread.site);
    return group.warps[thread.warp() % WARPS_OF_GROUP];
}

Warpgroup& Block::warpgroup_of(const Thread& thread, const char* operation, Site site) {
    unsigned number = thread.warp() / WARPS_OF_GROUP;
    if ((number + 1) * WARPS_OF_GROUP > warp_count_) {
        fail_at(
            cudaErrorLaunchFailure,
            text("%s in a warpgroup of fewer than 4 warps", operation), site
        );
    }
    if (number >= warpgroups_.size()) warpgroups_.resize(number + 1);
    if (warpgroups_[number] == nullptr) {
        warpgroups_[number] = std::make_unique<Warpgroup>();
    }
    return *warpgroups_[number];
}

void Block::start_multiplication(void* const* payloads) {
    auto start_of = [payloads](unsigned lane) -> const MultiplicationStart& {
        return *static_cast<const MultiplicationStart*>(payloads[lane]);
    };
    const Thread& thread = *current_thread_;
    const Multiplication& what = start_of(0).what;
    const char* operation = operation_of(what.format);
    Site site = start_of(0).site;
    auto refuse = [&](const std::string& why) {
        fail_at(cudaErrorLaunchFailure, text("%s %s", operation, why.c_str()), site);
    };
    Warpgroup& group = warpgroup_of(thread, operation, site);
    unsigned warp_number = thread.warp() % WARPS_OF_GROUP;
    WarpMultiplications& warp = group.warps[warp_number];
    for (unsigned lane = 1; lane < WARP_SIZE; ++lane) {
        if (!(start_of(lane).what == what)) {
            refuse("with operands that differ between the lanes of a warp,");
        }
    }
    if (!warp.has_fenced) refuse("without a wgmma_fence() before it");
    std::uint64_t number = warp.started++;
    std::uint64_t position = number - group.finished;
    if (position == group.multiplications.size()) {
        auto check = [&](std::uint64_t descriptor, bool is_transposed, int size) {
            std::string fault = fault_of_matrix(
                descriptor, is_transposed, static_cast<std::size_t>(size)
            );
            if (!fault.empty()) refuse(fault);
        };
        if (!what.a_is_in_registers) check(what.a, what.a_is_transposed, Operands::M);
        check(what.b, what.b_is_transposed, what.n);
        group.multiplications.push_back({what, site});
    }
    StartedMultiplication& started = group.multiplications[position];
    if (!(started.what == what)) {
        refuse(text(
            "with operands that differ from those of the warpgroup's other warps at "
            "%s,",
            site_text(started.site).c_str()
        ));
    }
    started.warps |= 1u << warp_number;
    warp.last_site = site;

    // The accumulators may be in flight already; if not, the registers hold them.
    WarpAccumulators* own = nullptr;
    for (const auto& each : warp.accumulators) {
        if (each->registers[0] == start_of(0).registers) own = each.get();
    }
    if (own == nullptr) {
        warp.accumulators.push_back(std::make_unique<WarpAccumulators>());
        own = warp.accumulators.back().get();
        own->is_in_flight = false;
        own->n = 0;
    }
    if (own->is_in_flight && own->n != what.n) {
        refuse("into accumulators of a multiplication in flight of another shape,");
    }
    if (!own->is_in_flight) {
        bool is_known = own->n == what.n;
        own->n = what.n;
        own->sums.resize(static_cast<std::size_t>(16 * what.n));
        for (unsigned lane = 0; lane < WARP_SIZE; ++lane) {
            own->registers[lane] = start_of(lane).registers;
        }
        bool is_changed = false;
        for_each_register(*own, [&](float& number, float& sum) {
            is_changed |= is_known && !holds_bits(sum, as<std::uint32_t>(number));
            sum = number;
            if (launch_->options.late_copies) number = as<float>(IN_FLIGHT_BITS);
        });
        if (is_changed && !warp.is_fenced) {
            refuse(
                "into accumulators that were changed without a wgmma_fence() since,"
            );
        }
        own->is_in_flight = true;
    }
    own->end = number + 1;
    started.accumulators[warp_number] = own;

    if (what.a_is_in_registers) {
        if (!warp.is_fenced) {
            refuse("of a matrix in registers without a wgmma_fence() since the wait,");
        }
        auto operand = std::make_shared<WarpOperand>();
        operand->end = number + 1;
        operand->site = site;
        for (unsigned lane = 0; lane < WARP_SIZE; ++lane) {
            operand->registers[lane] = start_of(lane).a;
            std::copy_n(
                start_of(lane).a, WarpOperand::REGISTERS, operand->values[lane]
            );
        }
        started.operands[warp_number] = operand;
        warp.operands.push_back(std::move(operand));
    }

    if (group.complete() <= number) return;
    if (observer != nullptr) tell_of_multiplication(started, thread.warp());
    if (!launch_->options.late_copies) finish_multiplications(group, number + 1);
    if (group.waiting.empty()) return;
    note_progress();
}

/// Why a descriptor is invalid; empty if it is valid.
std::string Block::fault_of_matrix(
    std::uint64_t descriptor, bool is_transposed, std::size_t size
) const {
    constexpr std::uint64_t SWIZZLE_FIELD = std::uint64_t{3} << 62;
    constexpr std::uint64_t SWIZZLE_128 = std::uint64_t{1} << 62;
    constexpr std::uint64_t UNUSED = ~(SWIZZLE_FIELD | 0x3fff3fff3fff);
    MatrixLayout layout(descriptor);
    if ((descriptor & SWIZZLE_FIELD) != SWIZZLE_128 || (descriptor & UNUSED) != 0) {
        return text(
            "of descriptor 0x%016llx, which is not one of a matrix with the 128-byte "
            "swizzle,",
            static_cast<unsigned long long>(descriptor)
        );
    }
    if (layout.start / BOX_ROW_BYTES % ROWS_OF_SWIZZLE != 0) {
        return text(
            "of a matrix that begins at byte %zu of dynamic shared memory, not in the "
            "first of the 8 rows of a swizzle pattern,",
            layout.start
        );
    }
    std::size_t end = layout.end(is_transposed, size);
    std::size_t limit = launch_->request.shared_bytes;
    if (end <= limit) return "";
    return text(
        "of a matrix that ends %zu bytes past the end of dynamic shared memory (%zu "
        "bytes)",
        end - limit, limit
    );
}

/// Tells the observer that a multiplication may read its matrices from now on.
void Block::tell_of_multiplication(
    const StartedMultiplication& started, unsigned warp
) {
    unsigned first = warp / WARPS_OF_GROUP * WARPS_OF_GROUP;
    std::array<unsigned, WARPS_OF_GROUP> threads;
    for (unsigned i = 0; i < WARPS_OF_GROUP; ++i) threads[i] = (first + i) * WARP_SIZE;
    unsigned number = warp / WARPS_OF_GROUP;
    warpgroups_[number]->times.push_back(
        observer->agent_begins(multiply_agent(number), threads.data(), threads.size())
    );
    const Multiplication& what = started.what;
    auto tell = [&](std::uint64_t descriptor, bool is_transposed, int size) {
        for_each_chunk(
            descriptor, is_transposed, static_cast<std::size_t>(size),
            element_bytes(what.format),
            [&](std::size_t offset, std::size_t, std::size_t) {
                observer->agent_accesses(
                    shared_memory() + offset, MATRIX_CHUNK_BYTES,
                    Access::asynchronous_read, started.site
                );
            }
        );
    };
    if (!what.a_is_in_registers) tell(what.a, what.a_is_transposed, Operands::M);
    tell(what.b, what.b_is_transposed, what.n);
}

// ---- Ends ---------------------------------------------------------------------------

/// Computes a warpgroup's multiplications up to a number.
void Block::finish_multiplications(Warpgroup& group, std::uint64_t end) {
    if (operands_ == nullptr) operands_ = std::make_unique<Operands>();
    while (group.finished < end) {
        StartedMultiplication& next = group.multiplications.front();
        switch (next.what.format) {
            case MatrixFormat::half:
                compute<MatrixFormat::half>(*operands_, shared_memory(), next);
                break;
            case MatrixFormat::bfloat16:
                compute<MatrixFormat::bfloat16>(*operands_, shared_memory(), next);
                break;
            case MatrixFormat::tf32:
                compute<MatrixFormat::tf32>(*operands_, shared_memory(), next);
                break;
            case MatrixFormat::e4m3:
                compute<MatrixFormat::e4m3>(*operands_, shared_memory(), next);
                break;
            case MatrixFormat::e5m2:
                compute<MatrixFormat::e5m2>(*operands_, shared_memory(), next);
                break;
        }
        ++group.finished;
        if (!launch_->options.late_copies) {
            for (WarpAccumulators* each : next.accumulators) {
                if (each->end == group.finished) return_accumulators(*each);
            }
        }
        group.multiplications.pop_front();
    }
}

void Block::return_accumulators(WarpAccumulators& accumulators) {
    for_each_register(accumulators, [](float& number, float& sum) { number = sum; });
    accumulators.is_in_flight = false;
}

/// Computes the multiplications that a warpgroup's threads wait for, as far as all
/// warps have started them, and releases the threads that wait for no others. False if
/// there are none.
bool Block::finish_multiplications_waited_for(Warpgroup& group) {
    std::uint64_t complete = group.complete();
    std::uint64_t end = 0;
    for (const Warpgroup::Waiting& each : group.waiting) {
        if (each.end <= complete) end = std::max(end, each.end);
    }
    if (end == 0) return false;
    finish_multiplications(group, end);
    std::vector<Thread*> ready;
    std::erase_if(group.waiting, [&](const Warpgroup::Waiting& each) {
        if (each.end > group.finished) return false;
        ready.push_back(each.thread);
        return true;
    });
    note_progress();
    wake(ready);
    return true;
}

namespace {

struct MultiplicationWait {
    std::size_t unfinished;
    std::uint64_t end;  // the result: the end of the multiplications to wait for
};

constexpr const char* WAIT_OPERATION = "wgmma_wait_group";

}  // namespace

void Block::begin_wait(void* const* payloads) {
    auto wait_of = [payloads](unsigned lane) -> MultiplicationWait& {
        return *static_cast<MultiplicationWait*>(payloads[lane]);
    };
    const Thread& thread = *current_thread_;
    Warpgroup& group = warpgroup_of(thread, WAIT_OPERATION, thread.site);
    WarpMultiplications& warp = group.warps[thread.warp() % WARPS_OF_GROUP];
    std::uint64_t end = warp.awaited;
    for (; warp.group_ends.size() > wait_of(0).unfinished;
         warp.group_ends.pop_front()) {
        end = warp.group_ends.front();
    }
    for (unsigned lane = 0; lane < WARP_SIZE; ++lane) wait_of(lane).end = end;
}

/// Waits for the multiplications up to a number, in each lane of a warp.
void Block::wait_for_multiplications(std::uint64_t end, Site site) {
    RuntimeScope scope(*this);
    Thread& thread = begin_operation(State::running, WAIT_OPERATION, site);
    Warpgroup& group = warpgroup_of(thread, WAIT_OPERATION, site);
    if (end > group.finished) {
        thread.state = State::in_multiplication;
        group.waiting.push_back({&thread, end});
        switch_to_next();
    }
    WarpMultiplications& warp = group.warps[thread.warp() % WARPS_OF_GROUP];
    if (end > warp.awaited) give_back_accumulators(warp, end, site);
    if (observer != nullptr && end > 0) {
        observer->agent_is_awaited(
            multiply_agent(thread.warp() / WARPS_OF_GROUP), group.times[end - 1],
            thread.number
        );
    }
}

/// Returns a warp's sums to its registers, except those that a later multiplication
/// adds to.
void Block::give_back_accumulators(
    WarpMultiplications& warp, std::uint64_t end, Site site
) {
    warp.awaited = end;
    warp.is_fenced = false;
    for (; !warp.operands.empty() && warp.operands.front()->end <= end;
         warp.operands.pop_front()) {
        const WarpOperand& operand = *warp.operands.front();
        for (unsigned lane = 0; lane < WARP_SIZE; ++lane) {
            if (std::equal(
                    std::begin(operand.values[lane]), std::end(operand.values[lane]),
                    operand.registers[lane]
                )) {
                continue;
            }
            fail_at(
                cudaErrorLaunchFailure,
                text(
                    "registers with the left matrix of the multiplication at %s "
                    "written to while it was in flight, found by %s",
                    site_text(operand.site).c_str(), WAIT_OPERATION
                ),
                site
            );
        }
    }
    for (const auto& each : warp.accumulators) {
        if (!each->is_in_flight || each->end > end) continue;
        auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
        auto registers =
            reinterpret_cast<std::uintptr_t>(each->registers[current_thread_->lane()]);
        if (registers / STACK_BYTES == frame / STACK_BYTES && registers < frame) {
            fail_at(
                cudaErrorLaunchFailure,
                std::string(WAIT_OPERATION) +
                    " for accumulators of a function that has returned,",
                site
            );
        }
        bool is_changed = false;
        for_each_register(*each, [&is_changed](float& number, float&) {
            is_changed |= !holds_bits(number, IN_FLIGHT_BITS);
        });
        if (is_changed) {
            fail_at(
                cudaErrorLaunchFailure,
                "accumulators written to while a multiplication was in flight, "
                "found by " +
                    std::string(WAIT_OPERATION),
                site
            );
        }
        return_accumulators(*each);
    }
}

/// Fails if a thread returns without having waited for its multiplications.
void Block::check_multiplications_of(const Thread& thread) {
    unsigned number = thread.warp() / WARPS_OF_GROUP;
    if (number >= warpgroups_.size() || warpgroups_[number] == nullptr) return;
    const WarpMultiplications& warp =
        warpgroups_[number]->warps[thread.warp() % WARPS_OF_GROUP];
    if (warp.awaited == warp.started) return;
    fail_in_thread(
        cudaErrorLaunchFailure,
        text(
            "multiplication not awaited: the thread returns without a "
            "wgmma_wait_group() for the multiplication that it started at %s",
            site_text(warp.last_site).c_str()
        ),
        thread.number
    );
}

// ---- Called by kernels --------------------------------------------------------------

std::uint64_t matrix_descriptor(
    const void* shared, int leading_bytes, int stride_bytes, Site site
) {
    constexpr std::uint64_t SWIZZLE_128 = std::uint64_t{1} << 62;
    constexpr std::uint64_t ADDRESS_MASK = 0x3ffff;
    Block& block = this_block();
    auto offset = static_cast<std::uint64_t>(
        static_cast<const unsigned char*>(shared) - block.shared_memory()
    );
    auto field = [](std::uint64_t bytes) { return (bytes & ADDRESS_MASK) >> 4; };
    if (offset >= SHARED_BYTES_PER_MULTIPROCESSOR || offset % 16 != 0 ||
        leading_bytes % 16 != 0 || stride_bytes % 16 != 0) {
        block.fail_at(
            cudaErrorLaunchFailure,
            text(
                "wgmma_descriptor of %s with leading and stride bytes %d and %d: the "
                "address must lie in dynamic shared memory, and all three must be "
                "multiples of 16,",
                block.place_of(shared).c_str(), leading_bytes, stride_bytes
            ),
            site
        );
    }
    return SWIZZLE_128 | field(offset) |
           field(static_cast<std::uint64_t>(leading_bytes)) << 16 |
           field(static_cast<std::uint64_t>(stride_bytes)) << 32;
}

void start_multiplication(
    const Multiplication& what, float* d, const std::uint32_t* a, Site site
) {
    MultiplicationStart start{what, d, a, site};
    auto start_for_all = [](void* const* payloads, unsigned) {
        this_block().start_multiplication(payloads);
    };
    meet_whole_warp(operation_of(what.format), site, &start, start_for_all);
}

void fence_multiplications(Site site) {
    auto fence_for_all = [](void* const*, unsigned) {
        WarpMultiplications& warp = this_block().multiplications_of_warp();
        warp.has_fenced = warp.is_fenced = true;
    };
    meet_whole_warp("wgmma_fence", site, &site, fence_for_all);
}

void commit_multiplications(Site site) {
    auto commit_for_all = [](void* const*, unsigned) {
        WarpMultiplications& warp = this_block().multiplications_of_warp();
        warp.group_ends.push_back(warp.started);
    };
    meet_whole_warp("wgmma_commit_group", site, &site, commit_for_all);
}

void wait_for_multiplications(std::size_t unfinished, Site site) {
    MultiplicationWait wait{unfinished, 0};
    auto begin_for_all = [](void* const* payloads, unsigned) {
        this_block().begin_wait(payloads);
    };
    meet_whole_warp(WAIT_OPERATION, site, &wait, begin_for_all);
    this_block().wait_for_multiplications(wait.end, site);
}

}  // namespace emulator

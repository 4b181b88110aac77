// Tensor copies, of boxes between global and shared memory: their start, and when they
// are performed.
//
// The tensor memory accelerator makes a copy at any time from its start on, in any
// order. The emulator makes it at once, or when no thread of the block can go on
// without one; asynchrony.cpp then chooses which.

#include "tensor_copies.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "../observer.h"
#include "block.h"
#include "launch.h"
#include "text.h"

namespace emulator {

// ---- The box ------------------------------------------------------------------------

namespace {

constexpr std::size_t CHUNK_BYTES = 16;  // which a swizzle moves as a whole

/// Calls visit(shared, global, before, inside) for every row of a box: its unswizzled
/// place in shared memory, the global address of its part inside the tensor, and the
/// numbers of bytes before that part and in it.
template <typename Visit>
void for_each_row(const BoxCopy& copy, unsigned char* shared, Visit visit) {
    const TensorMap& map = copy.map;
    auto clip = [](std::int64_t value, std::uint64_t size) {
        return std::clamp<std::int64_t>(value, 0, static_cast<std::int64_t>(size));
    };
    std::int64_t x = copy.position.x;
    std::int64_t first = clip(x, map.sizes[0]);
    std::int64_t end = clip(x + map.box_sizes[0], map.sizes[0]);
    const int corner[] = {copy.position.y, copy.position.z, copy.position.w};
    for (std::size_t number = 0; number < map.rows(); ++number) {
        std::size_t rest = number;
        bool is_inside = first < end;
        std::uint64_t row = 0;  // its offset in the tensor
        for (unsigned i = 1; i < map.rank; ++i) {
            auto step = static_cast<std::int64_t>(rest % map.box_sizes[i]);
            rest /= map.box_sizes[i];
            std::int64_t place = corner[i - 1] + step;
            is_inside = is_inside && clip(place, map.sizes[i] - 1) == place;
            row += static_cast<std::uint64_t>(place) * map.strides[i - 1];
        }
        std::size_t before = 0, inside = 0;
        unsigned char* global = nullptr;
        if (is_inside) {
            before = static_cast<std::size_t>(first - x) * map.element_bytes;
            inside = static_cast<std::size_t>(end - first) * map.element_bytes;
            global = map.address + row +
                     static_cast<std::uint64_t>(first) * map.element_bytes;
        }
        visit(shared, global, before, inside);
        shared += map.row_bytes();
    }
}

/// Calls visit(chunk, offset) for every 16 bytes of a row: their swizzled place, and
/// their offset in the row.
template <typename Visit>
void for_each_chunk(const TensorMap& map, unsigned char* row, Visit visit) {
    for (std::size_t offset = 0; offset < map.row_bytes(); offset += CHUNK_BYTES) {
        auto address = reinterpret_cast<std::uintptr_t>(row + offset);
        std::uintptr_t chunk = swizzled(address, map.swizzled_bits);
        visit(reinterpret_cast<unsigned char*>(chunk), offset);
    }
}

constexpr std::size_t MAX_ROW_BYTES = 256 * 8;
using Row = std::array<unsigned char, MAX_ROW_BYTES>;

/// The bits of a float32, rounded to the nearest tf32, which lacks the lowest 13 of them:
/// ties to even, and beyond the largest number to infinity. Infinities and NaN stay.
std::uint32_t rounded_to_tf32(std::uint32_t bits) {
    constexpr std::uint32_t EXPONENT = 0x7f800000, LOST_BITS = 0x1fff;
    if ((bits & EXPONENT) == EXPONENT) return bits;
    std::uint32_t is_odd = bits >> 13 & 1;
    return (bits + LOST_BITS / 2 + is_odd) & ~LOST_BITS;
}

void round_to_tf32(Row& row, std::size_t row_bytes) {
    for (std::size_t i = 0; i < row_bytes; i += sizeof(std::uint32_t)) {
        std::uint32_t bits;
        std::memcpy(&bits, row.data() + i, sizeof(bits));
        bits = rounded_to_tf32(bits);
        std::memcpy(row.data() + i, &bits, sizeof(bits));
    }
}

}  // namespace

const BoxLoad* TensorCopies::load_into(const Block& block) const {
    for (const BoxLoad& load : loads) {
        for (const BoxLoad::Target& target : load.targets) {
            if (target.block == &block) return &load;
        }
    }
    return nullptr;
}

void perform_load(const BoxCopy& copy, unsigned char* target) {
    for_each_row(
        copy, target,
        [&copy](
            unsigned char* shared, const unsigned char* global, std::size_t before,
            std::size_t inside
        ) {
            Row row;
            std::memset(row.data(), 0, copy.map.row_bytes());
            if (inside > 0) std::memcpy(row.data() + before, global, inside);
            if (copy.map.rounds_to_tf32) round_to_tf32(row, copy.map.row_bytes());
            for_each_chunk(
                copy.map, shared, [&row](unsigned char* chunk, std::size_t offset) {
                    std::memcpy(chunk, row.data() + offset, CHUNK_BYTES);
                }
            );
        }
    );
}

void perform_store(const BoxCopy& copy) {
    for_each_row(
        copy, copy.shared,
        [&copy](
            unsigned char* shared, unsigned char* global, std::size_t before,
            std::size_t inside
        ) {
            Row row;
            for_each_chunk(
                copy.map, shared, [&row](unsigned char* chunk, std::size_t offset) {
                    std::memcpy(row.data() + offset, chunk, CHUNK_BYTES);
                }
            );
            if (inside > 0) std::memcpy(global, row.data() + before, inside);
        }
    );
}

// ---- Start and end ------------------------------------------------------------------

/// The copy that a thread requests; the launch fails if it is invalid.
BoxCopy Block::checked_copy(
    const CUtensorMap* map, BoxPosition position, const void* shared,
    const char* operation, Site site
) {
    constexpr std::uintptr_t SHARED_ALIGNMENT = 128;
    auto address = reinterpret_cast<std::uintptr_t>(shared);
    if (address % SHARED_ALIGNMENT != 0) {
        misaligned_access(operation, site, shared, SHARED_ALIGNMENT);
    }
    auto refuse = [&](const std::string& why) {
        fail_at(
            cudaErrorLaunchFailure, text("%s of %s,", operation, why.c_str()), site
        );
    };
    TensorMap known = read_tensor_map(*map);
    if (known.mark != TensorMap::MARK) {
        refuse("a tensor map that cuTensorMapEncodeTiled did not make");
    }
    if (known.rank != position.rank) {
        refuse(text(
            "a tensor of %u dimensions, expected %u", unsigned{known.rank},
            position.rank
        ));
    }
    // An H200 traps here with "illegal instruction", and so it does for a store that
    // begins before the tensor. The PTX ISA documents neither.
    if (std::int64_t{position.x} * known.element_bytes % std::int64_t{CHUNK_BYTES} !=
        0) {
        refuse(text("a box at column %d, not a multiple of 16 bytes", position.x));
    }
    std::size_t offset = address - reinterpret_cast<std::uintptr_t>(shared_memory());
    std::size_t limit = launch_->request.shared_bytes;
    if (offset >= limit || known.box_bytes() > limit - offset) {
        refuse(text(
            "a box of %zu bytes at %s, which ends outside of the block's %zu bytes",
            known.box_bytes(), place_of(shared).c_str(), limit
        ));
    }
    auto* place = shared_memory() + offset;
    return {known, position, place, site, 0};
}

/// The copy of neighbouring bytes that a thread requests, as a box of rows of 16 bytes.
BoxCopy Block::checked_bulk_copy(
    const void* shared, const void* global, int bytes, Site site
) {
    constexpr const char* OPERATION = "bulk_load";
    for (const void* place : {shared, global}) {
        if (reinterpret_cast<std::uintptr_t>(place) % CHUNK_BYTES == 0) continue;
        misaligned_access(OPERATION, site, place, CHUNK_BYTES);
    }
    auto offset = static_cast<std::size_t>(
        static_cast<const unsigned char*>(shared) - shared_memory()
    );
    std::size_t limit = launch_->request.shared_bytes;
    auto size = static_cast<std::size_t>(bytes);
    if (bytes <= 0 || size % CHUNK_BYTES != 0 || offset >= limit ||
        size > limit - offset) {
        fail_at(
            cudaErrorLaunchFailure,
            text(
                "%s of %d bytes to %s, expected a multiple of 16 that ends within the "
                "block's %zu bytes,",
                OPERATION, bytes, place_of(shared).c_str(), limit
            ),
            site
        );
    }
    TensorMap rows{};
    rows.address = static_cast<unsigned char*>(const_cast<void*>(global));
    rows.rank = 2;
    rows.element_bytes = 1;
    rows.sizes[0] = rows.box_sizes[0] = CHUNK_BYTES;
    rows.sizes[1] = size / CHUNK_BYTES;
    rows.box_sizes[1] = static_cast<std::uint16_t>(size / CHUNK_BYTES);
    rows.strides[0] = CHUNK_BYTES;
    return {rows, {0, 0, 0}, shared_memory() + offset, site, 0};
}

/// Tells the observer that a copy may access its place in shared memory from now on.
void Block::tell_of_copy(
    const BoxCopy& copy, unsigned char* place, Access shared_access
) {
    auto tell = [&](const unsigned char* begin, std::size_t bytes) {
        observer->agent_accesses(begin, bytes, shared_access, copy.site);
    };
    bool is_contiguous = copy.map.swizzled_bits == 0 || copy.map.row_bytes() % 128 == 0;
    if (is_contiguous) return tell(place, copy.map.box_bytes());
    for (std::size_t row = 0; row < copy.map.rows(); ++row) {
        auto tell_chunk = [&](unsigned char* chunk, std::size_t) {
            tell(chunk, CHUNK_BYTES);
        };
        for_each_chunk(copy.map, place + row * copy.map.row_bytes(), tell_chunk);
    }
}

void Block::tell_of_global_accesses(const BoxCopy& copy, Access access) {
    for_each_row(
        copy, copy.shared,
        [&](unsigned char*, const unsigned char* global, std::size_t,
            std::size_t inside) {
            if (inside > 0) note_access(global, inside, access, copy.site);
        }
    );
}

void Block::start_box_load(
    void* shared, const CUtensorMap* map, BoxPosition position, std::uint64_t* word,
    const std::uint16_t* blocks, const char* operation, Site site
) {
    RuntimeScope scope(*this);
    begin_operation(State::running, operation, site);
    BoxCopy copy = checked_copy(map, position, shared, operation, site);
    start_load(copy, word, blocks, operation, site);
}

void Block::start_bulk_load(
    void* shared, const void* global, int bytes, std::uint64_t* word, Site site
) {
    RuntimeScope scope(*this);
    begin_operation(State::running, "bulk_load", site);
    BoxCopy copy = checked_bulk_copy(shared, global, bytes, site);
    start_load(copy, word, nullptr, "bulk_load", site);
}

void Block::start_load(
    const BoxCopy& copy, std::uint64_t* word, const std::uint16_t* blocks,
    const char* operation, Site site
) {
    BoxLoad load;
    load.copy = copy;
    std::uint32_t ranks = blocks != nullptr ? *blocks : 1u << rank_;
    if (ranks == 0) {
        fail_at(
            cudaErrorLaunchFailure, text("%s with an empty mask of blocks", operation),
            site
        );
    }
    for (int rank = 0; ranks >> rank != 0; ++rank) {
        if ((ranks >> rank & 1) == 0) continue;
        Block& block = peer(rank, operation, site);
        unsigned char* place = load.copy.shared;
        std::uint64_t* own_word = word;
        if (&block != this) {
            place = block.shared_memory() + (place - shared_memory());
            own_word =
                static_cast<std::uint64_t*>(map_shared(word, rank, operation, site));
        }
        note_access(own_word, sizeof(*own_word), Access::read, site);
        Mbarrier& barrier = mbarrier_of(block, own_word, operation, site);
        if (!barrier.is_published) {
            fail_for_unpublished_mbarrier(barrier, operation, site);
        }
        load.targets.push_back({&block, place, &barrier});
    }
    load.agent = load_agent(load.targets.front().barrier->id.number);
    if (observer != nullptr) {
        tell_of_global_accesses(load.copy, Access::read);
        unsigned thread = current_thread_->number;
        load.copy.time = observer->agent_begins(load.agent, &thread, 1);
        for (const BoxLoad::Target& target : load.targets) {
            tell_of_copy(load.copy, target.shared, Access::asynchronous_write);
        }
    }
    tensor_copies_.loads.push_back(load);
    if (!launch_->options.late_copies) {
        finish_box_load(tensor_copies_.loads.size() - 1);
    }
}

void Block::finish_box_load(std::size_t position) {
    auto& loads = tensor_copies_.loads;
    BoxLoad load = std::move(loads[position]);
    loads.erase(loads.begin() + static_cast<std::ptrdiff_t>(position));
    std::size_t bytes = load.copy.map.box_bytes();
    for (const BoxLoad::Target& target : load.targets) {
        perform_load(load.copy, target.shared);
        if (observer != nullptr) {
            observer->agent_has_written(target.shared, bytes);
            observer->mbarrier_hears_of(
                target.barrier->id, rank_, load.agent, load.copy.time
            );
        }
        complete_bytes(*target.block, *target.barrier, static_cast<int>(bytes));
    }
}

void Block::start_box_store(
    const CUtensorMap* map, BoxPosition position, const void* shared, Site site
) {
    constexpr const char* OPERATION = "tma_store";
    RuntimeScope scope(*this);
    Thread& thread = begin_operation(State::running, OPERATION, site);
    BoxCopy copy = checked_copy(map, position, shared, OPERATION, site);
    const auto [x, y, z, w, rank] = position;
    if (x < 0 || y < 0 || z < 0 || w < 0) {
        fail_at(
            cudaErrorLaunchFailure,
            text(
                "%s of a box that begins before the tensor, at (%d, %d, %d%s),",
                OPERATION, x, y, z, rank == 3 ? "" : text(", %d", w).c_str()
            ),
            site
        );
    }
    if (copy.map.rounds_to_tf32) {
        fail_at(
            cudaErrorLaunchFailure,
            text("%s by a tensor map of tf32, which is for loads,", OPERATION), site
        );
    }
    if (observer != nullptr) {
        tell_of_global_accesses(copy, Access::write);
        unsigned number = thread.number;
        copy.time = observer->agent_begins(store_agent(thread.warp()), &number, 1);
        tell_of_copy(copy, copy.shared, Access::asynchronous_read);
    }
    if (!launch_->options.late_copies) perform_store(copy);
    tensor_copies_.stores[thread.number].copies.push_back(copy);
}

void Block::commit_box_stores() {
    RuntimeScope scope(*this);
    BoxStores& own = tensor_copies_.stores[current_thread_->number];
    own.group_ends.push_back(own.copies.size());
}

void Block::wait_for_box_stores(std::size_t unread, Site site) {
    RuntimeScope scope(*this);
    Thread& thread = begin_operation(State::running, "tma_store_wait_group_read", site);
    BoxStores& own = tensor_copies_.stores[thread.number];
    if (own.group_ends.size() <= unread) return;
    std::size_t groups = own.group_ends.size() - unread;
    own.awaited = own.group_ends[groups - 1];
    if (launch_->options.late_copies && own.awaited > 0) {
        // The other threads go first: they might overwrite the source of the store.
        thread.state = State::in_box_store;
        tensor_copies_.waiting.push_back(&thread);
        switch_to_next();
    }
    auto read = own.copies.begin() + static_cast<std::ptrdiff_t>(own.awaited);
    if (observer != nullptr && own.awaited > 0) {
        observer->agent_is_awaited(
            store_agent(thread.warp()), read[-1].time, thread.number
        );
    }
    own.copies.erase(own.copies.begin(), read);
    own.group_ends.erase(
        own.group_ends.begin(),
        own.group_ends.begin() + static_cast<std::ptrdiff_t>(groups)
    );
    for (std::size_t& end : own.group_ends) end -= own.awaited;
}

/// Performs the stores that a thread waits for, and releases it.
void Block::finish_box_stores(std::size_t position) {
    auto& waiting = tensor_copies_.waiting;
    Thread& thread = *waiting[position];
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(position));
    const BoxStores& own = tensor_copies_.stores[thread.number];
    for (std::size_t i = 0; i < own.awaited; ++i) perform_store(own.copies[i]);
    note_progress();
    thread.state = State::running;
    ready_.push(&thread);
}

void Block::publish_shared_writes() {
    RuntimeScope scope(*this);
    mbarriers_.publish(current_thread_->number);
    if (observer != nullptr) observer->writes_are_published(current_thread_->number);
}

// ---- Called by kernels --------------------------------------------------------------

void start_box_load(
    void* shared, const CUtensorMap* map, BoxPosition position, std::uint64_t* barrier,
    const std::uint16_t* blocks, const char* operation, Site site
) {
    this_block().start_box_load(
        shared, map, position, barrier, blocks, operation, site
    );
}

void start_bulk_load(
    void* shared, const void* global, int bytes, std::uint64_t* barrier, Site site
) {
    this_block().start_bulk_load(shared, global, bytes, barrier, site);
}

void start_box_store(
    const CUtensorMap* map, BoxPosition position, const void* shared, Site site
) {
    this_block().start_box_store(map, position, shared, site);
}

void commit_box_stores() { this_block().commit_box_stores(); }

void wait_for_box_stores(std::size_t unread, Site site) {
    this_block().wait_for_box_stores(unread, site);
}

void publish_shared_writes() { this_block().publish_shared_writes(); }

void check_tensor_map(const CUtensorMap* map, const char* operation, Site site) {
    if (read_tensor_map(*map).mark == TensorMap::MARK) return;
    this_block().fail_at(
        cudaErrorLaunchFailure,
        text("%s of a tensor map that cuTensorMapEncodeTiled did not make,", operation),
        site
    );
}

}  // namespace emulator

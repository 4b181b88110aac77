// Mbarriers: arrivals, bytes, phases, and the threads that wait. Named barriers.

#include "mbarrier.h"

#include <algorithm>

#include "../device/mbarrier.h"
#include "../observer.h"
#include "block.h"
#include "text.h"

namespace emulator {

// ---- The state of an mbarrier -------------------------------------------------------

std::uint64_t Mbarrier::encoded() const {
    constexpr std::uint64_t MARK = 2;  // of 2 bits
    constexpr std::uint64_t BYTES_MASK = (1 << 21) - 1;
    return MARK << 62 | std::uint64_t{parity} << 61 |
           (static_cast<std::uint64_t>(bytes) & BYTES_MASK) << 40 |
           std::uint64_t{expected} << 20 | pending;
}

std::string Mbarrier::missing() const {
    if (bytes < 0) {
        std::string arrivals =
            pending == 0
                ? ""
                : text(", and %u of %u arrivals are missing", pending, expected);
        return text("%d more bytes have arrived than it expects", -bytes) + arrivals;
    }
    std::string arrivals = text("%u of %u arrivals", pending, expected);
    if (bytes == 0) return arrivals + " are missing";
    if (pending == 0) return text("%d bytes are missing", bytes);
    return arrivals + text(" and %d bytes are missing", bytes);
}

Mbarrier& Mbarriers::add(
    unsigned rank, std::uint64_t* word, unsigned expected, unsigned initialiser
) {
    Mbarrier* barrier = find(word);
    auto number = static_cast<unsigned>(barriers_.size());
    if (barrier == nullptr) {
        barrier = &barriers_.emplace_back();
    } else {
        number = barrier->id.number;
        *barrier = {};
    }
    barrier->id = {rank, number};
    barrier->word = word;
    barrier->initialiser = initialiser;
    barrier->expected = barrier->pending = expected;
    *word = barrier->encoded();
    return *barrier;
}

Mbarrier* Mbarriers::find(const std::uint64_t* word) {
    for (Mbarrier& barrier : barriers_) {
        if (barrier.word == word) return &barrier;
    }
    return nullptr;
}

void Mbarriers::publish(unsigned initialiser) {
    for (Mbarrier& barrier : barriers_) {
        if (barrier.initialiser == initialiser) barrier.is_published = true;
    }
}

// ---- Operations of threads ----------------------------------------------------------

void Block::initialise_mbarrier(std::uint64_t* word, int arrivals, Site site) {
    constexpr const char* OPERATION = "mbarrier_init";
    RuntimeScope scope(*this);
    if (reinterpret_cast<std::uintptr_t>(word) % sizeof(*word) != 0) {
        misaligned_access(OPERATION, site, word, sizeof(*word));
    }
    if (arrivals < 1 || arrivals > Mbarrier::MAX_ARRIVALS) {
        fail_at(
            cudaErrorLaunchFailure,
            text("%s for %d arrivals, expected 1 to 2^20 - 1,", OPERATION, arrivals),
            site
        );
    }
    note_access(word, sizeof(*word), Access::write, site);
    unsigned thread = current_thread_->number;
    Mbarrier& barrier =
        mbarriers_.add(rank_, word, static_cast<unsigned>(arrivals), thread);
    if (observer != nullptr) observer->mbarrier_begins(barrier.id);
}

void Block::publish_mbarriers() {
    RuntimeScope scope(*this);
    mbarriers_.publish(current_thread_->number);
}

/// The mbarrier at an address in a block's shared memory; the launch fails if there is
/// none.
Mbarrier& Block::mbarrier_of(
    Block& block, std::uint64_t* word, const char* operation, Site site
) {
    Mbarrier* barrier = block.mbarriers_.find(word);
    if (barrier == nullptr) {
        fail_at(
            cudaErrorLaunchFailure,
            text(
                "uninitialised mbarrier: %s of %s, where mbarrier_init has made none,",
                operation, place_of(word).c_str()
            ),
            site
        );
    }
    if (*word != barrier->encoded()) {
        fail_at(
            cudaErrorLaunchFailure,
            text(
                "overwritten mbarrier: %s of %s, whose 8 bytes the kernel has "
                "overwritten,",
                operation, place_of(word).c_str()
            ),
            site
        );
    }
    return *barrier;
}

void Block::arrive_at_mbarrier(
    std::uint64_t* word, int bytes, const char* operation, Site site
) {
    RuntimeScope scope(*this);
    Thread& thread = begin_operation(State::running, operation, site);
    note_access(word, sizeof(*word), Access::read, site);
    Mbarrier& barrier = mbarrier_of(*this, word, operation, site);
    if (observer != nullptr) {
        observer->mbarrier_is_arrived_at(barrier.id, thread.number);
    }
    expect_bytes(barrier, bytes, operation, site);
    count_arrival(*this, barrier, operation, site);
}

void Block::expect_bytes(
    Mbarrier& barrier, int bytes, const char* operation, Site site
) {
    if (bytes < 0 || bytes > Mbarrier::MAX_BYTES ||
        barrier.bytes + bytes > Mbarrier::MAX_BYTES) {
        fail_at(
            cudaErrorLaunchFailure,
            text(
                "%s of %d bytes, added to %d; a phase counts from 0 to 2^20 - 1,",
                operation, bytes, barrier.bytes
            ),
            site
        );
    }
    barrier.bytes += bytes;
}

/// Counts an arrival at an mbarrier of a block of the cluster.
void Block::count_arrival(
    Block& block, Mbarrier& barrier, const char* operation, Site site
) {
    if (barrier.pending == 0) {
        fail_at(
            cudaErrorLaunchFailure,
            text(
                "too many arrivals: %s at the mbarrier at %s, whose current phase "
                "already has all of its %u arrivals (%s),",
                operation, place_of(barrier.word).c_str(), barrier.expected,
                barrier.missing().c_str()
            ),
            site
        );
    }
    --barrier.pending;
    end_phase_if_complete(block, barrier);
}

void Block::complete_bytes(Block& block, Mbarrier& barrier, int bytes) {
    barrier.bytes -= bytes;
    end_phase_if_complete(block, barrier);
}

void Block::end_phase_if_complete(Block& block, Mbarrier& barrier) {
    block.note_progress();
    if (barrier.pending == 0 && barrier.bytes == 0) {
        if (barrier.woken > 0) fail_for_overrun_mbarrier(barrier);
        barrier.parity ^= 1;
        barrier.pending = barrier.expected;
        if (observer != nullptr) observer->mbarrier_phase_ends(barrier.id);
        barrier.woken = static_cast<unsigned>(barrier.waiting.size());
        block.wake(barrier.waiting);
    }
    *barrier.word = barrier.encoded();
}

/// On the hardware a waiting thread polls: it might look at the mbarrier only after the
/// next phase has ended as well, and would then wait for the phase after that.
void Block::fail_for_overrun_mbarrier(const Mbarrier& barrier) {
    fail(
        cudaErrorLaunchFailure,
        text(
            "overrun mbarrier: the one at %s ends another phase before all threads "
            "that waited for the previous phase have seen it end",
            place_of(barrier.word).c_str()
        )
    );
}

void Block::wait_for_mbarrier(std::uint64_t* word, int parity, Site site) {
    constexpr const char* OPERATION = "mbarrier_wait";
    RuntimeScope scope(*this);
    Thread& thread = begin_operation(State::running, OPERATION, site);
    note_access(word, sizeof(*word), Access::read, site);
    Mbarrier& barrier = mbarrier_of(*this, word, OPERATION, site);
    if (parity != 0 && parity != 1) {
        fail_at(
            cudaErrorLaunchFailure,
            text("%s for phase parity %d, expected 0 or 1,", OPERATION, parity), site
        );
    }
    if (barrier.parity == static_cast<unsigned>(parity)) {
        thread.state = State::in_mbarrier;
        thread.payload = &barrier;
        barrier.waiting.push_back(&thread);
        switch_to_next();
        --barrier.woken;
    }
    if (observer != nullptr) {
        observer->mbarrier_is_awaited(barrier.id, thread.number);
    }
}

// ---- Named barriers -----------------------------------------------------------------

/// Arrives at a named barrier, and waits there or goes on.
void Block::arrive_at_named_barrier(int number, int threads, bool waits, Site site) {
    const char* operation = waits ? "named_barrier_sync" : "named_barrier_arrive";
    RuntimeScope scope(*this);
    Thread& thread = begin_operation(
        waits ? State::in_named_barrier : State::running, operation, site
    );
    bool is_possible = number >= 0 && number < static_cast<int>(NAMED_BARRIERS) &&
                       threads > 0 && threads % static_cast<int>(WARP_SIZE) == 0 &&
                       static_cast<unsigned>(threads) <= thread_count_;
    if (!is_possible) {
        fail_at(
            cudaErrorLaunchFailure,
            text(
                "%s of barrier %d for %d threads; barriers are numbered 0 to 15, and "
                "the threads must be a multiple of 32 and no more than the block has,",
                operation, number, threads
            ),
            site
        );
    }
    auto expected = static_cast<unsigned>(threads);
    NamedBarrier& barrier = named_barriers_[static_cast<unsigned>(number)];
    if (waits) thread.mask = static_cast<unsigned>(number);
    // For the observer it is an mbarrier, with a number that no other one reaches.
    constexpr unsigned FIRST_NUMBER = 4096;
    MbarrierId id{rank_, FIRST_NUMBER + static_cast<unsigned>(number)};
    if (barrier.arrived() == 0) {
        barrier.threads = expected;
        if (observer != nullptr) observer->mbarrier_begins(id);
    }
    if (barrier.threads != expected) {
        fail(
            cudaErrorLaunchFailure,
            text(
                "divergent barrier: named barrier %d is for %u threads, but at %s for "
                "%u",
                number, barrier.threads, site_text(site).c_str(), expected
            )
        );
    }
    if (std::ranges::find(barrier.gone_on, &thread) != barrier.gone_on.end()) {
        fail_at(
            cudaErrorLaunchFailure,
            text(
                "%s of named barrier %d, at which the thread has arrived before and "
                "others of %u have not,",
                operation, number, expected
            ),
            site
        );
    }
    if (observer != nullptr) observer->mbarrier_is_arrived_at(id, thread.number);
    if (waits) {
        barrier.waiting.push_back(&thread);
    } else {
        barrier.gone_on.push_back(&thread);
    }
    if (barrier.arrived() == expected) {
        if (observer != nullptr) {
            observer->mbarrier_phase_ends(id);
            for (const Thread* each : barrier.waiting) {
                observer->mbarrier_is_awaited(id, each->number);
            }
        }
        note_progress();
        barrier.gone_on.clear();
        wake(barrier.waiting);
    }
    if (waits) switch_to_next();
}

// ---- Called by kernels --------------------------------------------------------------

void initialise_mbarrier(std::uint64_t* barrier, int arrivals, Site site) {
    this_block().initialise_mbarrier(barrier, arrivals, site);
}

void publish_mbarriers() { this_block().publish_mbarriers(); }

void arrive_at_mbarrier(
    std::uint64_t* barrier, int bytes, const char* operation, Site site
) {
    this_block().arrive_at_mbarrier(barrier, bytes, operation, site);
}

void wait_for_mbarrier(std::uint64_t* barrier, int parity, Site site) {
    this_block().wait_for_mbarrier(barrier, parity, site);
}

void meet_at_named_barrier(int barrier, int threads, Site site) {
    this_block().arrive_at_named_barrier(barrier, threads, true, site);
}

void arrive_at_named_barrier(int barrier, int threads, Site site) {
    this_block().arrive_at_named_barrier(barrier, threads, false, site);
}

}  // namespace emulator

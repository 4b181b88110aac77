// Error messages, and the end of a block that fails.
//
// A failed block ends at once: its worker goes on, its fibres never do. Destructors of
// objects on their stacks do not run.

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "../observer.h"
#include "block.h"
#include "cluster.h"
#include "launch.h"
#include "text.h"

namespace emulator {

// ---- Ends ---------------------------------------------------------------------------

/// Ends the block for a fault of several threads: the message tells what each one does.
void Block::fail(cudaError error, const std::string& what) {
    end(error, what + "\n  in " + place() + census());
}

/// Ends the block for a fault of one thread.
void Block::fail_in_thread(cudaError error, const std::string& what, unsigned thread) {
    RuntimeScope scope(*this);
    std::string where = text(
        "\n  in thread %u = %s of ", thread, index_text(thread_indices_[thread]).c_str()
    );
    end(error, what + where + place());
}

void Block::fail_at(cudaError error, const std::string& what, Site site) {
    RuntimeScope scope(*this);
    fail_in_thread(error, what + " at " + site_text(site), current_thread_->number);
}

void fail_in_thread(cudaError error, const std::string& what, unsigned thread) {
    this_block().fail_in_thread(error, what, thread);
}

/// Ends the block because another one has failed, which it may be waiting for.
void Block::end_after_failure() { end(cudaErrorLaunchFailure, ""); }

void Block::end(cudaError error, const std::string& message) {
    error_ = error;
    message_ = message;
    if (&fibres_.running() == &fibres_.main()) throw BlockFailure();
    fibres_.switch_to(fibres_.main());
    __builtin_unreachable();
}

// ---- Particular faults --------------------------------------------------------------

// These are functions of their own because their callers are hot, and the formatting of
// a message would enlarge the callers' stack frames.

void Block::fail_for_deadlock() {
    fail(cudaErrorLaunchFailure, "deadlock: no thread can go on");
}

void Block::fail_for_step_limit() {
    Thread& thread = *current_thread_;
    if (thread.state == State::running) thread.state = State::polling;
    fail(
        cudaErrorLaunchTimeout,
        text(
            "step limit: the threads of the block called the emulator more than "
            "%" PRIu64
            " times (barriers, warp operations, atomics, polls); if the kernel needs "
            "more, raise TWIN_EMULATOR_STEP_LIMIT",
            launch_->options.step_limit
        )
    );
}

void Block::fail_for_time_limit(
    const Thread& thread, const char* file, std::uintptr_t offset
) {
    fail(
        cudaErrorLaunchTimeout,
        text(
            "time limit: for %u s no thread of the block called the emulator or "
            "returned; thread %u, at 0x%zx of %s, loops forever or polls memory that "
            "no thread writes; if the kernel needs more time, raise "
            "TWIN_EMULATOR_TIME_LIMIT",
            launch_->options.time_limit_seconds, unsigned{thread.number},
            static_cast<std::size_t>(offset), file
        )
    );
}

void Block::fail_for_unnamed_caller(const Thread& thread) {
    fail(
        cudaErrorLaunchFailure,
        text(
            "wrong mask: lane %u (thread %u) calls %s at %s with mask 0x%08x, which "
            "does not name it",
            thread.lane(), unsigned{thread.number}, thread.operation,
            site_text(thread.site).c_str(), thread.mask
        )
    );
}

void Block::fail_for_returned_lanes(const Thread& thread) {
    fail(
        cudaErrorLaunchFailure,
        text(
            "wrong mask: %s at %s with mask 0x%08x names lanes that have returned",
            thread.operation, site_text(thread.site).c_str(), thread.mask
        )
    );
}

void Block::check_box_stores_of(const Thread& thread) {
    auto own = tensor_copies_.stores.find(thread.number);
    if (own == tensor_copies_.stores.end() || own->second.copies.empty()) return;
    fail_in_thread(
        cudaErrorLaunchFailure,
        text(
            "store not awaited: the thread returns without a "
            "tma_store_wait_group_read() for the store that it started at %s",
            site_text(own->second.copies.front().site).c_str()
        ),
        thread.number
    );
}

void Block::fail_for_unpublished_mbarrier(
    const Mbarrier& barrier, const char* operation, Site site
) {
    fail_at(
        cudaErrorLaunchFailure,
        text(
            "unpublished mbarrier: %s on the mbarrier at %s, with no "
            "fence_mbarrier_init() since its initialisation,",
            operation, place_of(barrier.word).c_str()
        ),
        site
    );
}

/// A load by any block of the cluster must not come to one that has ended.
void Block::check_loads_in_flight() {
    for (unsigned rank = 0; rank < cluster_->size(); ++rank) {
        const BoxLoad* load = cluster_->block(rank).tensor_copies_.load_into(*this);
        if (load == nullptr) continue;
        fail(
            cudaErrorLaunchFailure,
            text(
                "load not awaited: the block ends while the load that %s started at %s "
                "is still in flight",
                rank == rank_ ? "it" : text("block %u of the cluster", rank).c_str(),
                site_text(load->copy.site).c_str()
            )
        );
    }
}

// ---- The place, and what every thread does ------------------------------------------

std::string Block::place() const {
    return text(
        "block %s of grid %s, block size %s", index_text(block_index_).c_str(),
        index_text(launch_->request.grid_size).c_str(),
        index_text(launch_->request.block_size).c_str()
    );
}

/// What every thread of the block does: a line for each place, with the threads there.
std::string Block::census() const {
    struct Group {
        std::string activity;
        std::string ranges;
        unsigned range_count = 0;
    };
    constexpr unsigned MAX_RANGES = 8;
    std::vector<Group> groups;
    for (unsigned begin = 0; begin < thread_count_;) {
        std::string activity = activity_of(threads_[begin]);
        unsigned end = begin + 1;
        while (end < thread_count_ && activity_of(threads_[end]) == activity) ++end;

        auto group =
            std::find_if(groups.begin(), groups.end(), [&](const Group& other) {
                return other.activity == activity;
            });
        if (group == groups.end()) group = groups.insert(group, {activity, "", 0});
        if (group->range_count < MAX_RANGES) {
            if (group->range_count > 0) group->ranges += ", ";
            group->ranges += std::to_string(begin);
            if (end - begin > 1) group->ranges += "-" + std::to_string(end - 1);
        } else if (group->range_count == MAX_RANGES) {
            group->ranges += ", ...";
        }
        ++group->range_count;
        begin = end;
    }
    std::string result;
    for (const Group& group : groups) {
        bool is_one = group.ranges.find_first_not_of("0123456789") == std::string::npos;
        result += is_one ? "\n  thread " : "\n  threads ";
        result += group.ranges + ": " + group.activity;
    }
    return result;
}

std::string Block::activity_of(const Thread& thread) const {
    std::string detail;
    switch (thread.state) {
        case State::not_started:
            return "not started yet";
        case State::running:
        case State::interrupted:
            return "running";
        case State::returned:
            return "returned";
        case State::polling:
        case State::in_barrier:
        case State::in_warp_operation:
        case State::in_active_mask:
        case State::in_box_store:
        case State::in_cluster_barrier:
            break;
        case State::in_mbarrier: {
            const Mbarrier& barrier = *static_cast<const Mbarrier*>(thread.payload);
            detail = text(
                ", for the end of the phase with parity %u of the mbarrier at %s: ",
                barrier.parity, place_of(barrier.word).c_str()
            );
            detail += barrier.missing();
            break;
        }
        case State::in_named_barrier: {
            const NamedBarrier& barrier = named_barriers_[thread.mask];
            detail = text(
                ", at barrier %u with %zu of %u threads", thread.mask,
                barrier.arrived(), barrier.threads
            );
            break;
        }
        case State::in_multiplication:
            detail =
                ", for multiplications that some warps of the warpgroup have not "
                "started";
            break;
    }
    const char* verb = thread.state == State::polling ? "polling with" : "waiting in";
    return text("%s %s at %s", verb, thread.operation, site_text(thread.site).c_str()) +
           detail;
}

std::string Block::place_of(const void* shared) const {
    for (unsigned rank = 0; rank < cluster_->size(); ++rank) {
        const Block& block = cluster_->block(rank);
        auto offset = reinterpret_cast<std::uintptr_t>(shared) -
                      reinterpret_cast<std::uintptr_t>(block.shared_memory_.get());
        if (offset >= SHARED_BYTES_PER_MULTIPROCESSOR) continue;
        std::string place = text("byte %zu of dynamic shared memory", offset);
        return &block == this ? place
                              : place + text(" of block %u of the cluster", rank);
    }
    return text("address %p", shared);
}

// ---- Called by kernels --------------------------------------------------------------

void trap(Site site) {
    RuntimeScope scope(this_block());
    this_block().fail_at(cudaErrorLaunchFailure, "__trap()", site);
}

void misaligned_access(
    const char* operation, Site site, const void* address, std::size_t alignment
) {
    RuntimeScope scope(this_block());
    this_block().fail_at(
        cudaErrorMisalignedAddress,
        text(
            "%s of address %p, which is not a multiple of %zu,", operation, address,
            alignment
        ),
        site
    );
}

void assertion_failed(
    const char* expression, const char* file, int line, const char* function
) {
    if (!inside_launch()) {
        std::fprintf(
            stderr, "%s:%d: %s: Assertion `%s' failed.\n", file, line, function,
            expression
        );
        std::abort();
    }
    RuntimeScope scope(this_block());
    this_block().fail_at(
        cudaErrorAssert, text("assertion `%s' failed", expression), {file, line}
    );
}

}  // namespace emulator

// Macros of libraries call it by name, CUDA_KERNEL_ASSERT of torch among them. Hidden, so
// that it takes the place of the C library's in this module alone.
extern "C" [[noreturn, gnu::visibility("hidden")]] void __assert_fail(
    const char* expression, const char* file, unsigned line, const char* function
) noexcept {
    emulator::assertion_failed(expression, file, static_cast<int>(line), function);
}

// Threads that wait for each other: barriers of the block, and warp operations.
//
// The last thread to arrive does the work for all and makes them ready. Callers say
// what a warp operation computes: shuffle.cpp, and the templates of device/warp.h.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "../observer.h"
#include "block.h"

namespace emulator {
namespace {

bool same_site(Site a, Site b) {
    return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

bool same_operation(const Thread& a, const Thread& b) {
    return a.mask == b.mask && a.operation == b.operation && same_site(a.site, b.site);
}

}  // namespace

/// Makes all of these threads ready, and clears the list.
void Block::wake(std::vector<Thread*>& threads) {
    if (order_ == Order::reverse) std::reverse(threads.begin(), threads.end());
    for (Thread* thread : threads) {
        thread->state = State::running;
        ready_.push(thread);
    }
    threads.clear();
}

// ---- Barriers -----------------------------------------------------------------------

BarrierVotes Block::barrier(const char* operation, Site site, bool vote) {
    RuntimeScope scope(*this);
    begin_operation(State::in_barrier, operation, site);
    votes_ += vote;
    ++in_barrier_;
    // A thread that has returned counts as arrived, as it does since Volta. The last to
    // arrive releases all, itself included, so that they go on in the order of the
    // options.
    if (in_barrier_ == alive_) release_barrier();
    switch_to_next();
    return barrier_result_;
}

void Block::release_barrier() {
    const Thread* first = nullptr;
    for (unsigned number = 0; number < thread_count_; ++number) {
        const Thread& thread = threads_[number];
        if (thread.state != State::in_barrier) continue;
        if (first == nullptr) first = &thread;
        if (!same_site(thread.site, first->site)) {
            fail(
                cudaErrorLaunchFailure,
                "divergent barrier: threads of the block wait at different barriers"
            );
        }
    }
    if (observer != nullptr) observer->barrier_completes();
    barrier_result_ = {static_cast<int>(in_barrier_), votes_};
    in_barrier_ = 0;
    votes_ = 0;
    note_progress();
    wake(0, thread_count_, [](const Thread& thread) {
        return thread.state == State::in_barrier;
    });
}

BarrierVotes barrier(const char* operation, Site site, bool vote) {
    return this_block().barrier(operation, site, vote);
}

// ---- Warp operations ----------------------------------------------------------------

void Block::warp_meet(
    unsigned mask, const char* operation, Site site, void* payload,
    WarpFunction function
) {
    RuntimeScope scope(*this);
    Thread& thread = begin_operation(State::in_warp_operation, operation, site);
    thread.mask = mask;
    thread.payload = payload;
    Warp& warp = warps_[thread.warp()];
    unsigned own_bit = thread.lane_bit();
    if ((mask & own_bit) == 0) fail_for_unnamed_caller(thread);
    // The mask may name lanes that the block does not have (in the last warp of a block
    // whose size is not a multiple of 32), but no lanes that have returned.
    mask &= warp.existing;
    if ((mask & warp.alive) != mask) fail_for_returned_lanes(thread);
    if (warp.waiting == 0) {
        warp.any_waiting = &thread;
        warp.mixed = false;
    } else if (!same_operation(*warp.any_waiting, thread)) {
        warp.mixed = true;
    }
    warp.waiting |= own_bit;
    unsigned arrived = warp.mixed ? lanes_in_operation_of(thread) : warp.waiting;
    if ((arrived & mask) == mask) complete_warp_operation(thread, mask, function);
    switch_to_next();
}

/// The lanes that wait in the same operation as a thread, with the same mask. The
/// launch fails if a lane waits for this one in another operation: the two would never
/// meet.
unsigned Block::lanes_in_operation_of(const Thread& thread) {
    unsigned result = 0;
    const Warp& warp = warps_[thread.warp()];
    for (unsigned lanes = warp.waiting; lanes != 0; lanes &= lanes - 1) {
        auto lane = static_cast<unsigned>(std::countr_zero(lanes));
        const Thread& other = threads_[thread.warp() * WARP_SIZE + lane];
        if (same_operation(thread, other)) {
            result |= 1u << lane;
        } else if (
            (thread.mask & other.lane_bit()) != 0 &&
            (other.mask & thread.lane_bit()) != 0
        ) {
            fail(
                cudaErrorLaunchFailure,
                "divergent warp operation: lanes that wait for each other are in "
                "different operations or pass different masks"
            );
        }
    }
    return result;
}

/// Completes an operation whose last lane has arrived. Not inline, because the waiting
/// lanes then have a smaller stack frame: they cost as much as the cache lines that
/// they touch.
__attribute__((noinline)) void Block::complete_warp_operation(
    const Thread& last, unsigned mask, WarpFunction function
) {
    std::array<void*, WARP_SIZE> payloads;
    unsigned first = last.warp() * WARP_SIZE;
    for (unsigned lanes = mask; lanes != 0; lanes &= lanes - 1) {
        auto lane = static_cast<unsigned>(std::countr_zero(lanes));
        payloads[lane] = threads_[first + lane].payload;
    }
    function(payloads.data(), mask);
    // Only an operation without payloads (__syncwarp) orders memory accesses.
    if (observer != nullptr && last.payload == nullptr) {
        observer->warp_barrier_completes(last.warp(), mask);
    }
    Warp& warp = warps_[last.warp()];
    warp.waiting &= ~mask;
    warp.mixed = true;  // or empty, as the next lane to arrive will find
    note_progress();
    wake(first, WARP_SIZE, [mask](const Thread& other) {
        return (mask & other.lane_bit()) != 0;
    });
}

void warp_meet(
    unsigned mask, const char* operation, Site site, void* payload,
    WarpFunction function
) {
    this_block().warp_meet(mask, operation, site, payload, function);
}

// ---- Active mask --------------------------------------------------------------------

// The lanes that are converged with this one are known only once all others have run as
// far as they can. So a lane waits until nothing else in the block moves; the lanes of
// a warp that then wait at the same call are converged, as they would be on the
// hardware.
unsigned Block::active_mask(Site site) {
    RuntimeScope scope(*this);
    Thread& thread = begin_operation(State::in_active_mask, "__activemask", site);
    switch_to_next();
    return thread.mask;
}

/// Releases the threads that wait in __activemask. False if there are none.
bool Block::release_active_masks() {
    bool released = false;
    for (unsigned number = 0; number < thread_count_; ++number) {
        Thread& leader = threads_[number];
        if (leader.state != State::in_active_mask) continue;
        unsigned first = leader.warp() * WARP_SIZE;
        unsigned lanes_in_warp = std::min(WARP_SIZE, thread_count_ - first);
        auto converged = [&leader](const Thread& other) {
            return other.state == State::in_active_mask &&
                   same_site(other.site, leader.site);
        };
        unsigned mask = 0;
        for (unsigned lane = 0; lane < lanes_in_warp; ++lane) {
            if (converged(threads_[first + lane])) mask |= 1u << lane;
        }
        wake(first, lanes_in_warp, [mask](Thread& other) {
            bool chosen = (mask & other.lane_bit()) != 0;
            if (chosen) other.mask = mask;
            return chosen;
        });
        released = true;
    }
    return released;
}

unsigned active_mask(Site site) { return this_block().active_mask(site); }

}  // namespace emulator

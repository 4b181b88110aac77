// Threads that wait by polling: when the others get their turn, and when to give up.
//
// A block whose threads all poll is idle: it waits for other blocks, so it asks the
// launch whether any of those can still make progress.

#include <chrono>
#include <cinttypes>
#include <thread>
#include <utility>

#include "block.h"
#include "cluster.h"
#include "launch.h"
#include "text.h"

namespace emulator {

void Block::poll(const char* operation, Site site) {
    RuntimeScope scope(*this);
    yield(begin_operation(State::running, operation, site));
}

void Block::after_atomic(const char* operation, Site site, const AtomicAccess& access) {
    RuntimeScope scope(*this);
    Thread& thread = begin_operation(State::running, operation, site);
    if (access.before != access.after) {
        note_progress();
        return;
    }
    // A single atomic without effect means little (most calls of atomicMax have none),
    // but one that is repeated with the same outcome is polling.
    constexpr unsigned POLLING_REPETITIONS = 4;
    AtomicHistory& history = atomic_histories_[thread.number];
    if (history.last == access) {
        if (++history.repetitions >= POLLING_REPETITIONS) yield(thread);
    } else {
        history = {access, 0};
    }
}

/// Lets the other threads of the block run first.
void Block::yield(Thread& thread) {
    thread.state = State::polling;
    ready_.push(&thread);
    if (++polls_without_progress_ <= alive_) {
        switch_to_next();
    } else if (cluster_->is_alone()) {
        wait_for_other_blocks();
        switch_to_next();
    } else {
        polls_without_progress_ = 0;
        is_polling_ = true;
        if (launch_->has_failed()) end_after_failure();
        let_cluster_run();
    }
    thread.state = State::running;
}

/// Called when every thread of the block that can run has polled without a change: only
/// another block can release them.
void Block::wait_for_other_blocks() {
    std::uint64_t polls = std::exchange(polls_without_progress_, 0);
    if (launch_->has_failed()) end_after_failure();
    release_active_masks();
    if (finish_something()) return;
    if (!idle_) {
        idle_ = true;
        launch_->discount_busy_worker();
    }
    // Polls do not count towards the step limit while other blocks work.
    step_limit_ += polls;
    constexpr unsigned ROUNDS_BEFORE_MORE_BLOCKS = 20;
    constexpr unsigned ROUNDS_BEFORE_SLEEP = 1000;
    ++idle_rounds_;
    bool started = idle_rounds_ >= ROUNDS_BEFORE_MORE_BLOCKS &&
                   launch_->make_another_block_resident();
    if (started || launch_->is_busy()) {
        std::this_thread::yield();
        if (idle_rounds_ >= ROUNDS_BEFORE_SLEEP) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    } else if (launch_->count_idle_polls(polls) > launch_->options.step_limit) {
        fail(
            cudaErrorLaunchTimeout,
            text(
                "endless polling: all running blocks only poll, and nothing changed in "
                "%" PRIu64 " polls (TWIN_EMULATOR_STEP_LIMIT)",
                launch_->options.step_limit
            )
        );
    }
}

void Block::end_idleness() {
    idle_ = false;
    launch_->count_busy_worker();
}

// ---- Called by kernels --------------------------------------------------------------

void poll(const char* operation, Site site) { this_block().poll(operation, site); }

void after_atomic(const char* operation, Site site, const AtomicAccess& access) {
    this_block().after_atomic(operation, site, access);
}

std::int64_t clock_nanoseconds() {
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace emulator

// The life of a block and of its threads, and the scheduler that picks the next thread.
// The other parts of Block tell it which threads can go on.

#include "block.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "../device/language.h"
#include "../observer.h"
#include "cluster.h"
#include "launch.h"

constinit thread_local dim3 blockDim{0, 0, 0};
constinit thread_local dim3 gridDim{0, 0, 0};

namespace emulator {

// ---- The block ----------------------------------------------------------------------

Block::Block() : fibres_(*this, &Block::fibre_main) {
    for (unsigned number = 0; number < MAX_THREADS; ++number) {
        threads_[number].number = static_cast<std::uint16_t>(number);
    }
    constexpr std::size_t ALIGNMENT = 1024;
    static_assert(SHARED_BYTES_PER_MULTIPROCESSOR % ALIGNMENT == 0);
    shared_memory_.reset(
        static_cast<unsigned char*>(
            std::aligned_alloc(ALIGNMENT, SHARED_BYTES_PER_MULTIPROCESSOR)
        )
    );
    if (shared_memory_ == nullptr) throw std::bad_alloc();
}

void Block::enter(Launch& launch, Cluster& cluster, unsigned rank) {
    launch_ = &launch;
    cluster_ = &cluster;
    rank_ = rank;
    order_ = launch.options.order;
    dim3 size = launch.request.block_size;
    blockDim = size;
    gridDim = launch.request.grid_size;
    thread_count_ = size.x * size.y * size.z;
    warp_count_ = (thread_count_ + WARP_SIZE - 1) / WARP_SIZE;
    for (unsigned number = 0; number < thread_count_; ++number) {
        thread_indices_[number] = {
            number % size.x, number / size.x % size.y, number / (size.x * size.y)
        };
    }
    for (unsigned number = 0; number < warp_count_; ++number) {
        unsigned lanes = std::min(WARP_SIZE, thread_count_ - number * WARP_SIZE);
        warps_[number].existing = ~0u >> (WARP_SIZE - lanes);
    }
}

void Block::begin(std::uint64_t block_number, uint3 block_index) {
    reset(block_number, block_index);
    if (observer != nullptr) tell_observer();
}

bool Block::go_on() {
    is_polling_ = false;
    switch_to_next();
    return error_ == cudaSuccess;
}

void Block::end_run() {
    note_progress();  // a block that failed while idle leaves its worker busy again
    if (observer != nullptr) observer->block_ends(rank_);
}

void Block::tell_observer() {
    observer->block_begins(
        {.kernel = launch_->request.kernel,
         .number = launch_->number_of(block_index_),
         .rank = rank_,
         .cluster_size = static_cast<unsigned>(cluster_->size()),
         .size = launch_->request.block_size,
         .shared_memory = shared_memory_.get(),
         .shared_bytes = launch_->request.shared_bytes,
         .in_kernel = &in_kernel_}
    );
}

void Block::reset(std::uint64_t block_number, uint3 block_index) {
    block_index_ = block_index;
    random_ = Random(launch_->options.seed + block_number);
    for (unsigned number = 0; number < thread_count_; ++number) {
        Thread& thread = threads_[number];
        thread.state = State::not_started;
        thread.has_arrived = false;
        thread.interrupted_at = NEVER;
        atomic_histories_[number].repetitions = 0;
        start_order_[number] =
            order_ == Order::reverse ? thread_count_ - 1 - number : number;
    }
    if (order_ == Order::random) {
        for (unsigned i = thread_count_ - 1; i > 0; --i) {
            std::swap(start_order_[i], start_order_[random_.below(i + 1)]);
        }
    }
    for (unsigned number = 0; number < warp_count_; ++number) {
        warps_[number].alive = warps_[number].existing;
        warps_[number].waiting = 0;
    }
    async_copies_.begin(launch_->options.late_copies);
    mbarriers_.begin();
    for (NamedBarrier& barrier : named_barriers_) barrier = {};
    tensor_copies_.begin();
    warpgroups_.clear();
    ready_.clear();
    started_ = 0;
    alive_ = thread_count_;
    in_barrier_ = 0;
    votes_ = 0;
    steps_ = 0;
    step_limit_ = launch_->options.step_limit;
    polls_without_progress_ = 0;
    idle_rounds_ = 0;
    idle_ = false;
    events_at_last_tick_ = NEVER;
    silent_ticks_ = 0;
    error_ = cudaSuccess;
}

// ---- Threads ------------------------------------------------------------------------

void Block::fibre_main() {
    ThreadRecord& record =
        *record_of_stack(reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)));
    Block& block = *record.block;
    Fibre& fibre = block.fibres_.running();
    for (;;) {
        const LaunchRequest& request = block.launch_->request;
        record.block_index = block.block_index_;
        bool keep_stack = true;
        // The next thread reuses the stack of one that never waited: a kernel without
        // barriers runs as a plain loop over its threads.
        while (keep_stack && block.has_fresh_thread()) {
            Thread& thread = block.start_thread();
            thread.fibre = &fibre;
            record.thread = &thread;
            record.thread_index = block.thread_indices_[thread.number];
            block.in_kernel_.store(true, std::memory_order_relaxed);
            request.run_thread(request.arguments);
            block.in_kernel_.store(false, std::memory_order_relaxed);
            block.finish_thread(thread);
            keep_stack = block.order_ != Order::random;
        }
        block.fibres_.put_back(fibre);
        block.switch_to_next();
    }
}

Thread& Block::start_thread() {
    Thread& thread = threads_[start_order_[started_++]];
    thread.state = State::running;
    current_thread_ = &thread;
    return thread;
}

void Block::finish_thread(Thread& thread) {
    if (!tensor_copies_.stores.empty()) check_box_stores_of(thread);
    if (!warpgroups_.empty()) check_multiplications_of(thread);
    Warp& warp = warps_[thread.warp()];
    thread.state = State::returned;
    --alive_;
    warp.alive &= ~thread.lane_bit();
    for (unsigned lanes = warp.waiting; lanes != 0; lanes &= lanes - 1) {
        unsigned lane = static_cast<unsigned>(std::countr_zero(lanes));
        const Thread& waiting = threads_[thread.warp() * WARP_SIZE + lane];
        if ((waiting.mask & thread.lane_bit()) != 0) fail_for_returned_lanes(waiting);
    }
    note_progress();
    if (in_barrier_ > 0 && in_barrier_ == alive_) release_barrier();
    cluster_->end_barrier_if_complete();
    if (alive_ == 0 && observer != nullptr) observer->barrier_completes();
}

// ---- The scheduler ------------------------------------------------------------------

/// Switches to a thread that can run; returns when the calling fibre is chosen again.
void Block::switch_to_next() {
    bool random = order_ == Order::random;
    for (;;) {
        bool fresh = has_fresh_thread();
        if (fresh && random && !ready_.empty()) fresh = random_.below(2) == 0;
        if (fresh) {
            fibres_.switch_to(fibres_.take());
            return;
        }
        if (!ready_.empty()) {
            resume(take_ready_thread());
            return;
        }
        if (alive_ == 0) {
            check_loads_in_flight();
            fibres_.switch_to(fibres_.main());
            return;
        }
        if (!cluster_->is_alone()) {
            let_cluster_run();
            return;
        }
        if (!finish_something() && !release_active_masks()) fail_for_deadlock();
    }
}

/// Returns when the cluster has resumed the block and the calling fibre is chosen.
void Block::let_cluster_run() { fibres_.switch_to(fibres_.main()); }

Thread& Block::take_ready_thread() {
    return *(order_ == Order::random ? ready_.pop_random(random_) : ready_.pop());
}

void Block::resume(Thread& thread) {
    current_thread_ = &thread;
    fibres_.switch_to(*thread.fibre);
}

// ---- Called by kernels --------------------------------------------------------------

unsigned char* dynamic_shared() { return this_block().shared_memory(); }

unsigned lane() { return this_thread().thread->lane(); }

}  // namespace emulator

// A block: its threads, what each of them waits for, and which one runs next.
//
// Every thread of a block is a fibre, and all fibres of a block run on one thread of
// the operating system, so a block needs no locks. Its parts are in several files:
//
//   block.cpp          life of a block and of its threads, choice of the next thread
//   meeting.cpp        barriers of the block, and warp operations
//   mbarrier.cpp       mbarriers and named barriers
//   tensor_copies.cpp  copies by the tensor memory accelerator
//   warpgroup.cpp      matrix multiplications by a warpgroup
//   asynchrony.cpp     when these two are performed
//   polling.cpp        threads that wait by polling
//   interrupt.cpp      threads that poll without calling the emulator
//   faults.cpp         error messages
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../host/api.h"
#include "../observer.h"
#include "../runtime.h"
#include "async_copies.h"
#include "fibre.h"
#include "h100.h"
#include "mbarrier.h"
#include "options.h"
#include "tensor_copies.h"
#include "warpgroup.h"

namespace [[gnu::visibility("hidden")]] emulator {

class Cluster;
class Launch;

enum class State : std::uint8_t {
    not_started,
    running,  // or ready to
    polling,
    interrupted,  // by the timer
    in_barrier,
    in_warp_operation,
    in_active_mask,
    in_mbarrier,
    in_named_barrier,
    in_box_store,
    in_multiplication,
    in_cluster_barrier,
    returned,
};

// One cache line, because the scheduler walks over all threads of a block. Thread and
// Block carry the visibility attribute themselves: runtime.h declares them in a
// namespace without it.
struct [[gnu::visibility("hidden")]] alignas(64) Thread {
    Fibre* fibre;

    // Where it waits, or polled last.
    Site site;
    const char* operation;
    void* payload;
    unsigned mask;

    State state;
    bool has_arrived;              // at the cluster's barrier, and has not yet waited
    std::uint16_t number;          // in its block
    std::uint64_t interrupted_at;  // the block's event count at the last interrupt

    unsigned warp() const { return number / WARP_SIZE; }
    unsigned lane() const { return number % WARP_SIZE; }
    unsigned lane_bit() const { return 1u << lane(); }
};
static_assert(sizeof(Thread) == 64);

/// A thread's last atomic, to recognise a polling loop.
struct AtomicHistory {
    AtomicAccess last;
    unsigned repetitions;
};

struct Warp {
    unsigned existing;  // lanes that the block has
    unsigned alive;     // lanes that have not returned
    unsigned waiting;   // lanes in a warp operation
    bool mixed;         // whether these may wait in different operations
    const Thread* any_waiting;
};

/// Threads that can go on, in the order in which they will.
class ReadyQueue {
  public:
    bool empty() const { return count_ == 0; }

    void clear() { first_ = count_ = 0; }

    void push(Thread* thread) {
        threads_[(first_ + count_) % MAX_THREADS] = thread;
        ++count_;
    }

    Thread* pop() {
        Thread* thread = threads_[first_];
        first_ = (first_ + 1) % MAX_THREADS;
        --count_;
        return thread;
    }

    Thread* pop_random(Random& random) {
        std::size_t chosen = (first_ + random.below(count_)) % MAX_THREADS;
        std::swap(threads_[first_], threads_[chosen]);
        return pop();
    }

  private:
    std::array<Thread*, MAX_THREADS> threads_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
};

constexpr std::uint64_t NEVER = ~std::uint64_t{0};

class [[gnu::visibility("hidden")]] Block {
  public:
    Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    /// Prepares for the blocks of one launch that have this rank in their cluster.
    void enter(Launch& launch, Cluster& cluster, unsigned rank);

    // One block after another:
    void begin(std::uint64_t block_number, uint3 block_index);
    /// Runs until all threads have returned or, in a cluster, until none of them can go
    /// on. False if the block has failed; its fibres are then to be abandoned.
    bool go_on();
    /// Whether the block stopped because its threads only poll.
    bool is_polling() const { return is_polling_; }
    bool can_go_on() const { return has_fresh_thread() || !ready_.empty(); }
    bool has_ended() const { return alive_ == 0; }
    void end_run();
    void abandon() { fibres_.abandon(); }
    /// The place of the block in the grid, and what every thread does.
    std::string account() const { return place() + census(); }

    // Of the cluster:
    unsigned rank() const { return rank_; }
    unsigned alive() const { return alive_; }
    void leave_cluster_barrier();
    bool finish_something();
    bool release_active_masks();

    cudaError error() const { return error_; }
    const std::string& message() const { return message_; }

    // Called by the running thread of the block.
    BarrierVotes barrier(const char* operation, Site site, bool vote);
    void warp_meet(
        unsigned mask, const char* operation, Site site, void* payload,
        WarpFunction function
    );
    unsigned active_mask(Site site);
    void poll(const char* operation, Site site);
    void after_atomic(const char* operation, Site site, const AtomicAccess& access);
    [[noreturn]] void fail_at(cudaError error, const std::string& what, Site site);
    [[noreturn]] void fail_in_thread(
        cudaError error, const std::string& what, unsigned thread
    );
    unsigned char* shared_memory() { return shared_memory_.get(); }
    AsyncCopies& async_copies() { return async_copies_; }
    /// "byte 4 of dynamic shared memory"
    std::string place_of(const void* shared) const;

    void initialise_mbarrier(std::uint64_t* word, int arrivals, Site site);
    void publish_mbarriers();
    void arrive_at_mbarrier(
        std::uint64_t* word, int bytes, const char* operation, Site site
    );
    void wait_for_mbarrier(std::uint64_t* word, int parity, Site site);
    void arrive_at_named_barrier(int number, int threads, bool waits, Site site);

    void meet_cluster(const char* operation, Site site);
    void arrive_at_cluster(Site site);
    void wait_for_cluster(Site site);
    void* map_shared(const void* shared, int rank, const char* operation, Site site);
    void arrive_at_remote_mbarrier(std::uint64_t* word, int rank, Site site);
    void complete_remote_bytes(std::uint64_t* word, int bytes, int rank, Site site);

    void start_box_load(
        void* shared, const CUtensorMap* map, BoxPosition position, std::uint64_t* word,
        const std::uint16_t* blocks, const char* operation, Site site
    );
    void start_bulk_load(
        void* shared, const void* global, int bytes, std::uint64_t* word, Site site
    );
    void start_box_store(
        const CUtensorMap* map, BoxPosition position, const void* shared, Site site
    );
    void commit_box_stores();
    void wait_for_box_stores(std::size_t unread, Site site);
    void publish_shared_writes();

    // The last lane of a warp to arrive calls these two on behalf of all.
    void start_multiplication(void* const* payloads);
    void begin_wait(void* const* payloads);
    void wait_for_multiplications(std::uint64_t end, Site site);
    WarpMultiplications& multiplications_of_warp();

    /// Whether the kernel's own code runs: only then may a tick switch fibres.
    bool is_in_kernel() const { return in_kernel_.load(std::memory_order_relaxed); }
    /// Called by the timer's signal handler, in the middle of the kernel's code.
    /// Several ticks count as one, if only the last of them could interrupt the kernel.
    void tick(std::uintptr_t program_counter, unsigned ticks);

  private:
    // Life, and choice of the next thread.
    void reset(std::uint64_t block_number, uint3 block_index);
    void tell_observer();
    [[noreturn]] static void fibre_main();
    bool has_fresh_thread() const { return started_ < thread_count_; }
    Thread& start_thread();
    void finish_thread(Thread& thread);
    void switch_to_next();
    void let_cluster_run();
    Thread& take_ready_thread();
    void resume(Thread& thread);

    // Meeting.
    Thread& begin_operation(State state, const char* operation, Site site);
    void release_barrier();
    unsigned lanes_in_operation_of(const Thread& thread);
    void complete_warp_operation(
        const Thread& last, unsigned mask, WarpFunction function
    );
    template <typename Predicate>
    void wake(unsigned first, unsigned count, Predicate predicate);
    void wake(std::vector<Thread*>& threads);

    // Mbarriers.
    Mbarrier& mbarrier_of(
        Block& block, std::uint64_t* word, const char* operation, Site site
    );
    void expect_bytes(Mbarrier& barrier, int bytes, const char* operation, Site site);
    void count_arrival(
        Block& block, Mbarrier& barrier, const char* operation, Site site
    );
    void complete_bytes(Block& block, Mbarrier& barrier, int bytes);
    void end_phase_if_complete(Block& block, Mbarrier& barrier);

    Block& peer(int rank, const char* operation, Site site);
    Mbarrier& tell_remote_mbarrier(
        std::uint64_t* word, int rank, const char* operation, Site site
    );

    // Tensor copies.
    BoxCopy checked_bulk_copy(
        const void* shared, const void* global, int bytes, Site site
    );
    void start_load(
        const BoxCopy& copy, std::uint64_t* word, const std::uint16_t* blocks,
        const char* operation, Site site
    );
    BoxCopy checked_copy(
        const CUtensorMap* map, BoxPosition position, const void* shared,
        const char* operation, Site site
    );
    void tell_of_copy(const BoxCopy& copy, unsigned char* place, Access shared_access);
    void tell_of_global_accesses(const BoxCopy& copy, Access access);
    void finish_box_load(std::size_t position);
    void finish_box_stores(std::size_t position);
    void check_box_stores_of(const Thread& thread);
    void check_loads_in_flight();

    // Matrix multiplications.
    Warpgroup& warpgroup_of(const Thread& thread, const char* operation, Site site);
    std::string fault_of_matrix(
        std::uint64_t descriptor, bool is_transposed, std::size_t size
    ) const;
    void tell_of_multiplication(const StartedMultiplication& started, unsigned warp);
    void finish_multiplications(Warpgroup& group, std::uint64_t end);
    bool finish_multiplications_waited_for(Warpgroup& group);
    void return_accumulators(WarpAccumulators& accumulators);
    void give_back_accumulators(
        WarpMultiplications& warp, std::uint64_t end, Site site
    );
    void check_multiplications_of(const Thread& thread);

    bool finish_some_multiplications();

    // Polling.
    /// Changes whenever a thread calls the emulator or returns.
    std::uint64_t events() const { return steps_ + (thread_count_ - alive_); }
    void note_progress();
    void yield(Thread& thread);
    void wait_for_other_blocks();
    void end_idleness();

    // Faults.
    [[noreturn]] void fail(cudaError error, const std::string& what);
    [[noreturn]] void end(cudaError error, const std::string& message);
    [[noreturn]] void end_after_failure();
    [[noreturn]] void fail_for_deadlock();
    [[noreturn]] void fail_for_step_limit();
    [[noreturn]] void fail_for_time_limit(
        const Thread& thread, const char* file, std::uintptr_t offset
    );
    [[noreturn]] void fail_for_unnamed_caller(const Thread& thread);
    [[noreturn]] void fail_for_returned_lanes(const Thread& thread);
    [[noreturn]] void fail_for_unawaited_cluster(const char* operation, Site site);
    [[noreturn]] void fail_for_overrun_mbarrier(const Mbarrier& barrier);
    [[noreturn]] void fail_for_unpublished_mbarrier(
        const Mbarrier& barrier, const char* operation, Site site
    );
    std::string place() const;
    std::string census() const;
    std::string activity_of(const Thread& thread) const;

    friend class RuntimeScope;
    std::atomic<bool> in_kernel_{false};

    // The launch.
    Launch* launch_ = nullptr;
    Cluster* cluster_ = nullptr;
    unsigned rank_ = 0;
    Order order_ = Order::forward;
    std::uint64_t step_limit_ = 0;
    Random random_;
    uint3 block_index_{};
    unsigned thread_count_ = 0;
    unsigned warp_count_ = 0;

    // The threads.
    std::array<Thread, MAX_THREADS> threads_;
    std::array<uint3, MAX_THREADS> thread_indices_;
    std::array<AtomicHistory, MAX_THREADS> atomic_histories_;
    std::array<Warp, MAX_WARPS> warps_;
    std::array<unsigned, MAX_THREADS> start_order_;
    ReadyQueue ready_;
    unsigned started_ = 0;
    unsigned alive_ = 0;
    Thread* current_thread_ = nullptr;

    // The barrier.
    unsigned in_barrier_ = 0;
    int votes_ = 0;
    BarrierVotes barrier_result_{};

    // Asynchronous operations and the barriers that track them.
    AsyncCopies async_copies_;
    Mbarriers mbarriers_;
    NamedBarriers named_barriers_;
    TensorCopies tensor_copies_;
    std::vector<std::unique_ptr<Warpgroup>> warpgroups_;
    std::unique_ptr<Operands> operands_;  // of the multiplication being computed

    // How far the block has come.
    std::uint64_t steps_ = 0;  // calls of the emulator
    std::uint64_t polls_without_progress_ = 0;
    unsigned idle_rounds_ = 0;
    bool idle_ = false;        // every thread that can run only polls
    bool is_polling_ = false;  // as idle_, for a block of a cluster
    const Thread* thread_at_last_tick_ = nullptr;
    std::uint64_t events_at_last_tick_ = NEVER;
    std::uint64_t silent_ticks_ = 0;  // in a row, without an event

    // How it ended.
    cudaError error_ = cudaSuccess;
    std::string message_;

    FibrePool fibres_;

    struct Free {
        void operator()(void* pointer) const { std::free(pointer); }
    };
    std::unique_ptr<unsigned char, Free> shared_memory_;
};

/// Thrown by a block of a cluster that fails while none of its fibres is running.
struct BlockFailure {};

/// Marks the runtime's own code, in which the timer must not switch fibres.
class RuntimeScope {
  public:
    explicit RuntimeScope(Block& block) : block_(block) {
        block_.in_kernel_.store(false, std::memory_order_relaxed);
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    ~RuntimeScope() {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        block_.in_kernel_.store(true, std::memory_order_relaxed);
    }
    RuntimeScope(const RuntimeScope&) = delete;
    RuntimeScope& operator=(const RuntimeScope&) = delete;

  private:
    Block& block_;
};

/// Notes that the running thread calls the emulator. Every operation that a thread can
/// wait in begins here and counts as a step, so that a block that waits in vain ends at
/// the limit.
inline Thread& Block::begin_operation(State state, const char* operation, Site site) {
    Thread& thread = *current_thread_;
    thread.state = state;
    thread.operation = operation;
    thread.site = site;
    if (++steps_ > step_limit_) fail_for_step_limit();
    return thread;
}

inline void Block::note_progress() {
    polls_without_progress_ = 0;
    idle_rounds_ = 0;
    if (idle_) end_idleness();
}

/// Makes ready those of the `count` threads from `first` on that satisfy the predicate.
template <typename Predicate>
void Block::wake(unsigned first, unsigned count, Predicate predicate) {
    bool reverse = order_ == Order::reverse;
    for (unsigned i = 0; i < count; ++i) {
        Thread& thread = threads_[first + (reverse ? count - 1 - i : i)];
        if (!predicate(thread)) continue;
        thread.state = State::running;
        ready_.push(&thread);
    }
}

inline Block& this_block() { return *this_thread().block; }

}  // namespace emulator

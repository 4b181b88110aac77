// The scheduler of the emulator: fibres, blocks, launches and what they report.
//
// Every thread of a block is a fibre (a stack of its own, switched to in a few
// nanoseconds), all fibres of a block run on one thread of the operating system, and
// several of those take the blocks of a grid one after another.
//
// From bottom to top: options, fibre switch, Block (the threads of one block), Launch
// (the blocks of one grid), the host API.

#include "runtime.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cfenv>
#include <charconv>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/language.h"
#include "host/launch.h"

constinit thread_local dim3 blockDim{0, 0, 0};
constinit thread_local dim3 gridDim{0, 0, 0};

namespace emulator {
namespace {

constexpr unsigned WARP_SIZE = 32;
constexpr unsigned MAX_THREADS = 1024;
constexpr unsigned MAX_WARPS = MAX_THREADS / WARP_SIZE;

// The limits of the emulated device, an H100.
constexpr dim3 MAX_BLOCK_SIZE{1024, 1024, 64};
constexpr dim3 MAX_GRID_SIZE{0x7fffffff, 65535, 65535};
constexpr std::size_t SHARED_BYTES_WITHOUT_OPT_IN = 48 * 1024;
constexpr std::size_t MAX_SHARED_BYTES = 227 * 1024;
constexpr std::size_t SHARED_BYTES_PER_MULTIPROCESSOR = 228 * 1024;
constexpr unsigned MULTIPROCESSORS = 132;
constexpr unsigned THREADS_PER_MULTIPROCESSOR = 2048;

// Blocks that can wait for each other: two on every multiprocessor, as many as there
// can be of the largest. Smaller ones could be more, but each takes a thread of the
// system.
constexpr unsigned MAX_RESIDENT_BLOCKS = 2 * MULTIPROCESSORS;

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

std::string text(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    va_list same_arguments;
    va_copy(same_arguments, arguments);
    int length = std::vsnprintf(nullptr, 0, format, arguments);
    std::string result(static_cast<std::size_t>(length), '\0');
    std::vsnprintf(result.data(), result.size() + 1, format, same_arguments);
    va_end(same_arguments);
    va_end(arguments);
    return result;
}

// ---- Last error of the calling thread -----------------------------------------------

struct LastError {
    cudaError code = cudaSuccess;  // what cudaGetLastError returns and clears
    cudaError described = cudaSuccess;
    std::string message;  // of `described`
};

thread_local LastError last_error;

// ---- Options: from the environment, at every launch ---------------------------------

enum class Order { forward, reverse, random };

struct Options {
    Order order = Order::forward;
    std::uint64_t seed = 0;
    unsigned workers = 1;
    std::uint64_t step_limit = 50'000'000;
    unsigned time_limit_seconds = 10;

    std::string error;  // what is wrong with them; empty if nothing
};

bool parse_number(std::string_view digits, std::uint64_t& number) {
    const char* end = digits.data() + digits.size();
    auto [rest, error] = std::from_chars(digits.data(), end, number);
    return error == std::errc() && rest == end;
}

/// Reads a whole number of at least 1 from the environment, if it is there.
template <typename T>
void read_number(const char* name, T& value, std::string& error) {
    const char* setting = std::getenv(name);
    if (setting == nullptr) return;
    std::uint64_t number = 0;
    if (!parse_number(setting, number) || number == 0 || !std::in_range<T>(number)) {
        error = text("%s must be a whole number from 1, not '%s'", name, setting);
        return;
    }
    value = static_cast<T>(number);
}

Options read_options() {
    Options options;
    options.workers = std::max(1u, std::thread::hardware_concurrency());
    read_number("TWIN_EMULATOR_WORKERS", options.workers, options.error);
    read_number("TWIN_EMULATOR_STEP_LIMIT", options.step_limit, options.error);
    read_number("TWIN_EMULATOR_TIME_LIMIT", options.time_limit_seconds, options.error);
    if (const char* setting = std::getenv("TWIN_EMULATOR_ORDER")) {
        std::string_view order = setting;
        constexpr std::string_view RANDOM = "random:";
        if (order == "forward") {
            options.order = Order::forward;
        } else if (order == "reverse") {
            options.order = Order::reverse;
        } else if (
            order.starts_with(RANDOM) &&
            parse_number(order.substr(RANDOM.size()), options.seed)
        ) {
            options.order = Order::random;
        } else {
            options.error = text(
                "TWIN_EMULATOR_ORDER must be forward, reverse or random:SEED, not '%s'",
                setting
            );
        }
    }
    return options;
}

/// splitmix64: every seed, also 0, gives a good sequence.
class Random {
  public:
    explicit Random(std::uint64_t seed = 0) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t value = state_ += 0x9E3779B97F4A7C15;
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
        return value ^ (value >> 31);
    }
    std::uint64_t below(std::uint64_t limit) { return next() % limit; }

  private:
    std::uint64_t state_;
};

// ---- Fibre switch -------------------------------------------------------------------

// Saves what a function call must preserve on the current stack, stores the stack
// pointer in *save and goes on where `load` was stored. Rounding mode and the like
// (MXCSR, x87 control word, FPCR) are the same in all fibres, so they stay as they are.
extern "C" __attribute__((visibility("hidden"))) void twin_emulator_switch(
    void** save, void* load
);

#if defined(__x86_64__)
asm(R"(
    .text
    .hidden twin_emulator_switch
    .globl twin_emulator_switch
    .type twin_emulator_switch, @function
twin_emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size twin_emulator_switch, .-twin_emulator_switch
)");
constexpr int SAVED_WORDS = 8;  // six registers, the return address, and padding
constexpr int RETURN_ADDRESS_WORD = 6;

std::uintptr_t program_counter(const ucontext_t* context) {
    return static_cast<std::uintptr_t>(context->uc_mcontext.gregs[REG_RIP]);
}
#elif defined(__aarch64__)
asm(R"(
    .text
    .hidden twin_emulator_switch
    .globl twin_emulator_switch
    .type twin_emulator_switch, %function
twin_emulator_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size twin_emulator_switch, .-twin_emulator_switch
)");
constexpr int SAVED_WORDS = 20;
constexpr int RETURN_ADDRESS_WORD = 11;

std::uintptr_t program_counter(const ucontext_t* context) {
    return context->uc_mcontext.pc;
}
#else
#error "The emulator switches stacks in assembly: x86-64 and AArch64 are supported."
#endif

struct Fibre {
    void* stack_pointer = nullptr;  // while it is not running
};

}  // namespace

// ---- Block: the threads of one block ------------------------------------------------

enum class State : std::uint8_t {
    not_started,
    running,  // or ready to
    polling,
    interrupted,  // by a tick
    in_barrier,
    in_warp_operation,
    in_active_mask,
    returned,
};

// One cache line: the scheduler visits all threads of a block again and again.
struct alignas(64) Thread {
    Fibre* fibre;

    // Where it waits, or polled last.
    const char* operation;
    Site site;
    void* payload;
    unsigned mask;

    State state;
    std::uint16_t number;          // in its block
    std::uint64_t interrupted_at;  // the block's event count when it last was

    unsigned warp() const { return number / WARP_SIZE; }
    unsigned lane() const { return number % WARP_SIZE; }
    unsigned lane_bit() const { return 1u << lane(); }
};
static_assert(sizeof(Thread) == 64);

namespace {

/// A thread's last atomic, as far as it may be part of a polling loop.
struct AtomicHistory {
    AtomicAccess last;
    unsigned repetitions;
};

struct Warp {
    unsigned existing;  // lanes that the block has
    unsigned alive;     // lanes that have not returned
    unsigned waiting;   // lanes in a warp operation
    bool mixed;         // not all of those wait in the same one
    const Thread* any_waiting;
};

/// Threads that can go on, in the order they will.
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

constexpr long TICK_NANOSECONDS = 10'000'000;
constexpr unsigned TICKS_PER_SECOND = 1'000'000'000 / TICK_NANOSECONDS;
constexpr int TICK_SIGNAL = SIGURG;

}  // namespace

class Launch;

// Hidden, so that the compiler may inline what it would otherwise have to let another
// library replace.
class __attribute__((visibility("hidden"))) Block {
  public:
    Block();
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    /// Prepares for the blocks of one launch.
    void enter(Launch& launch);
    /// Runs one block. False if it failed; its fibres are then abandoned.
    bool run(std::uint64_t block_number, uint3 block_index);

    cudaError error() const { return error_; }
    const std::string& message() const { return message_; }

    // Called by the running thread of the block.
    BarrierVotes barrier(const char* operation, Site site, bool vote);
    void warp_meet(
        unsigned mask,
        const char* operation,
        Site site,
        void* payload,
        WarpFunction function
    );
    unsigned active_mask(Site site);
    void poll(const char* operation, Site site);
    void after_atomic(const char* operation, Site site, const AtomicAccess& access);
    [[noreturn]] void fail_at(cudaError error, const std::string& what, Site site);
    unsigned char* shared_memory() { return shared_memory_.get(); }

    /// Called by the timer's signal, in the middle of whatever runs.
    void tick(std::uintptr_t program_counter);

    [[noreturn]] static void fibre_main();

  private:
    // Scheduling.
    bool has_fresh_thread() const { return started_ < thread_count_; }
    Thread& start_thread();
    void finish_thread(Thread& thread);
    void switch_to(Fibre& next);
    void switch_to_next();
    Thread& take_ready_thread();
    void resume(Thread& thread);
    Fibre& fibre_for_fresh_thread();
    void wait(Thread& thread, State state, const char* operation, Site site);
    void make_ready(Thread& thread);
    template <typename Predicate>
    void wake(unsigned first, unsigned count, Predicate predicate);

    // Waiting.
    void release_barrier();
    unsigned lanes_in_operation_of(const Thread& thread);
    void complete_warp_operation(
        const Thread& last, unsigned mask, WarpFunction function
    );
    bool returned_thread_breaks_barrier() const;
    bool release_active_masks();
    void count_step();
    /// Changes whenever a thread calls the emulator or returns.
    std::uint64_t events() const { return steps_ + (thread_count_ - alive_); }
    void note_progress();
    void yield(Thread& thread);
    void wait_for_other_blocks();

    // Reporting.
    [[noreturn]] void fail(cudaError error, const std::string& what);
    [[noreturn]] void end(cudaError error, const std::string& message);
    /// What the block waits for may never come: another one has failed.
    [[noreturn]] void end_after_failure() { end(cudaErrorLaunchFailure, ""); }
    [[noreturn]] void fail_for_step_limit();
    [[noreturn]] void fail_for_time_limit(
        const Thread& thread, const char* file, std::uintptr_t offset
    );
    [[noreturn]] void fail_for_returned_lanes(const Thread& thread);
    std::string place() const;
    std::string census() const;
    static std::string activity_of(const Thread& thread);

    ThreadRecord& record_of_fibre(const Fibre& fibre) {
        auto number = static_cast<std::size_t>(&fibre - fibres_.data());
        return *record_of_stack(
            reinterpret_cast<std::uintptr_t>(stacks_) + number * STACK_BYTES
        );
    }

    // While the kernel's own code runs, and only then, a tick may switch fibres.
    friend class RuntimeScope;
    std::atomic<bool> in_kernel_{false};

    Launch* launch_ = nullptr;
    Order order_ = Order::forward;
    std::uint64_t step_limit_ = 0;
    Random random_;
    uint3 block_index_{};
    unsigned thread_count_ = 0;
    unsigned warp_count_ = 0;

    std::array<Thread, MAX_THREADS> threads_;
    std::array<uint3, MAX_THREADS> thread_indices_;
    std::array<AtomicHistory, MAX_THREADS> atomic_histories_;
    std::array<Warp, MAX_WARPS> warps_;
    std::array<unsigned, MAX_THREADS> start_order_;
    ReadyQueue ready_;
    unsigned started_ = 0;
    unsigned alive_ = 0;
    Thread* current_thread_ = nullptr;

    unsigned in_barrier_ = 0;
    int votes_ = 0;
    BarrierVotes barrier_result_{};

    std::uint64_t steps_ = 0;
    std::uint64_t polls_without_progress_ = 0;
    unsigned idle_rounds_ = 0;
    bool idle_ = false;  // every thread that can run only polls
    const Thread* thread_at_last_tick_ = nullptr;
    std::uint64_t events_at_last_tick_ = NEVER;
    std::uint64_t silent_ticks_ = 0;  // in a row, without an event

    cudaError error_ = cudaSuccess;
    std::string message_;

    // Fibre 0 .. created_fibres_-1 have begun; those in idle_fibres_ wait in fibre_main
    // for a thread to run.
    char* mapping_ = nullptr;
    char* stacks_ = nullptr;
    std::array<Fibre, MAX_THREADS> fibres_;
    unsigned created_fibres_ = 0;
    std::array<Fibre*, MAX_THREADS> idle_fibres_;
    unsigned idle_fibre_count_ = 0;
    Fibre main_;
    Fibre* current_fibre_ = &main_;

    struct Free {
        void operator()(void* pointer) const { std::free(pointer); }
    };
    std::unique_ptr<unsigned char, Free> shared_memory_;
};

// ---- Launch: the blocks of one grid -------------------------------------------------

class __attribute__((visibility("hidden"))) Launch {
  public:
    Launch(const LaunchRequest& request, const Options& options)
        : request(request),
          options(options),
          block_count_(
              std::uint64_t{request.grid_size.x} * request.grid_size.y *
              request.grid_size.z
          ),
          random_step_(choose_random_step()) {}

    cudaError run();

    bool has_failed() const { return failed_; }

    /// Whether any worker does something else than run a block that only polls.
    bool is_busy() const { return busy_workers_ > 0; }
    void count_busy_worker() {
        ++busy_workers_;
        idle_polls_ = 0;
    }
    void discount_busy_worker() { --busy_workers_; }

    /// Polls since the last worker was busy.
    std::uint64_t count_idle_polls(std::uint64_t polls) { return idle_polls_ += polls; }

    /// Starts one more worker if a block has not started yet and the device would hold
    /// it at the same time: a block may wait for any block that is resident.
    bool make_another_block_resident();

    const LaunchRequest request;
    const Options options;

  private:
    void work();
    void run_blocks();
    bool take_block(std::uint64_t& number);
    uint3 index_of(std::uint64_t number) const;
    std::uint64_t choose_random_step() const;
    bool start_worker();
    std::unique_ptr<Block> borrow_block();
    void fail(cudaError error, const std::string& message);

    const std::uint64_t block_count_;
    const std::uint64_t random_step_;
    std::atomic<std::uint64_t> next_block_{0};
    std::atomic<int> busy_workers_{1};  // the calling thread is one
    std::atomic<std::uint64_t> idle_polls_{0};
    std::atomic<bool> failed_{false};

    std::mutex mutex_;  // guards what follows
    std::vector<std::thread> workers_;
    std::vector<std::unique_ptr<Block>>* free_blocks_ = nullptr;
    cudaError error_ = cudaSuccess;
    std::string message_;
};

/// Marks the runtime's own code, in which a tick must not switch fibres.
class __attribute__((visibility("hidden"))) RuntimeScope {
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

namespace {

/// "softmax_kernel<float, 4>": the demangled symbol without return type and parameters.
std::string kernel_name(const void* kernel) {
    Dl_info info{};
    if (dladdr(kernel, &info) == 0) return text("kernel at %p", kernel);
    if (info.dli_sname == nullptr || info.dli_saddr != kernel) {
        auto offset =
            static_cast<const char*>(kernel) - static_cast<char*>(info.dli_fbase);
        return text("kernel at %s+0x%tx", info.dli_fname, offset);
    }
    int status = 0;
    char* demangled = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
    if (demangled == nullptr) return info.dli_sname;
    std::string name = demangled;
    std::free(demangled);

    if (name.ends_with(')')) {
        std::size_t opening = name.size();
        int depth = 0;
        do {
            --opening;
            if (name[opening] == ')') ++depth;
            if (name[opening] == '(') --depth;
        } while (depth > 0 && opening > 0);
        name.resize(opening);
    }
    constexpr std::string_view RETURN_TYPE = "void ";
    if (name.starts_with(RETURN_TYPE)) name.erase(0, RETURN_TYPE.size());
    return name;
}

std::string index_text(uint3 index) {
    return text("(%u, %u, %u)", index.x, index.y, index.z);
}

std::string site_text(Site site) { return text("%s:%d", site.file, site.line); }

bool same_site(Site a, Site b) {
    return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

bool same_operation(const Thread& a, const Thread& b) {
    return a.mask == b.mask && a.operation == b.operation && same_site(a.site, b.site);
}

}  // namespace

// ---- Block: life --------------------------------------------------------------------

Block::Block() {
    for (unsigned number = 0; number < MAX_THREADS; ++number) {
        threads_[number].number = static_cast<std::uint16_t>(number);
    }
    // One stack more than needed: the first is to begin at a multiple of its size.
    std::size_t bytes = (MAX_THREADS + 1) * STACK_BYTES;
    void* mapping = mmap(
        nullptr,
        bytes,
        PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
        -1,
        0
    );
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<char*>(mapping);
    auto address = reinterpret_cast<std::uintptr_t>(mapping_);
    stacks_ = mapping_ + (STACK_BYTES - address % STACK_BYTES) % STACK_BYTES;

    constexpr std::size_t ALIGNMENT = 1024;
    static_assert(SHARED_BYTES_PER_MULTIPROCESSOR % ALIGNMENT == 0);
    shared_memory_.reset(
        static_cast<unsigned char*>(
            std::aligned_alloc(ALIGNMENT, SHARED_BYTES_PER_MULTIPROCESSOR)
        )
    );
    if (shared_memory_ == nullptr) {
        munmap(mapping_, bytes);
        throw std::bad_alloc();
    }
}

Block::~Block() { munmap(mapping_, (MAX_THREADS + 1) * STACK_BYTES); }

void Block::enter(Launch& launch) {
    launch_ = &launch;
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

bool Block::run(std::uint64_t block_number, uint3 block_index) {
    block_index_ = block_index;
    random_ = Random(launch_->options.seed + block_number);
    for (unsigned number = 0; number < thread_count_; ++number) {
        Thread& thread = threads_[number];
        thread.state = State::not_started;
        atomic_histories_[number].repetitions = 0;
        thread.interrupted_at = NEVER;
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
    ready_.clear();
    started_ = 0;
    alive_ = thread_count_;
    in_barrier_ = 0;
    votes_ = 0;
    steps_ = 0;
    step_limit_ = launch_->options.step_limit;
    polls_without_progress_ = 0;
    idle_rounds_ = 0;
    events_at_last_tick_ = NEVER;
    silent_ticks_ = 0;
    error_ = cudaSuccess;

    idle_ = false;
    switch_to_next();
    note_progress();

    if (error_ == cudaSuccess) return true;
    // The fibres are somewhere inside the kernel: the next block begins with new ones.
    created_fibres_ = 0;
    idle_fibre_count_ = 0;
    return false;
}

// ---- Block: scheduling --------------------------------------------------------------

void Block::fibre_main() {
    ThreadRecord& record =
        *record_of_stack(reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)));
    Block& block = *record.block;
    Fibre& fibre = *block.current_fibre_;
    for (;;) {
        const LaunchRequest& request = block.launch_->request;
        record.block_index = block.block_index_;
        bool keep_stack = true;
        // A thread that never waits leaves its stack to the next one: a kernel without
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
        block.idle_fibres_[block.idle_fibre_count_++] = &fibre;
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
}

void Block::switch_to(Fibre& next) {
    if (&next == current_fibre_) return;
    Fibre& previous = *current_fibre_;
    current_fibre_ = &next;
    twin_emulator_switch(&previous.stack_pointer, next.stack_pointer);
}

/// Goes on with any thread that can run; returns when the calling fibre is chosen.
void Block::switch_to_next() {
    bool random = order_ == Order::random;
    for (;;) {
        bool fresh = has_fresh_thread();
        if (fresh && random && !ready_.empty()) fresh = random_.below(2) == 0;
        if (fresh) {
            switch_to(fibre_for_fresh_thread());
            return;
        }
        if (!ready_.empty()) {
            resume(take_ready_thread());
            return;
        }
        if (alive_ == 0) {
            switch_to(main_);
            return;
        }
        if (!release_active_masks()) {
            fail(cudaErrorLaunchFailure, "deadlock: no thread can go on");
        }
    }
}

Thread& Block::take_ready_thread() {
    return *(order_ == Order::random ? ready_.pop_random(random_) : ready_.pop());
}

void Block::resume(Thread& thread) {
    current_thread_ = &thread;
    switch_to(*thread.fibre);
}

Fibre& Block::fibre_for_fresh_thread() {
    if (idle_fibre_count_ > 0) return *idle_fibres_[--idle_fibre_count_];
    Fibre& fibre = fibres_[created_fibres_++];
    ThreadRecord& record = record_of_fibre(fibre);
    record.block = this;
    // As if twin_emulator_switch had been called at the very beginning of fibre_main.
    void** stack = reinterpret_cast<void**>(&record) - SAVED_WORDS;
    std::fill_n(stack, SAVED_WORDS, nullptr);
    stack[RETURN_ADDRESS_WORD] = reinterpret_cast<void*>(&Block::fibre_main);
    fibre.stack_pointer = stack;
    return fibre;
}

void Block::wait(Thread& thread, State state, const char* operation, Site site) {
    thread.state = state;
    thread.operation = operation;
    thread.site = site;
    switch_to_next();
}

void Block::make_ready(Thread& thread) {
    thread.state = State::running;
    ready_.push(&thread);
}

/// Makes those of `count` threads from `first` ready for which the predicate holds.
template <typename Predicate>
void Block::wake(unsigned first, unsigned count, Predicate predicate) {
    bool reverse = order_ == Order::reverse;
    for (unsigned i = 0; i < count; ++i) {
        Thread& thread = threads_[first + (reverse ? count - 1 - i : i)];
        if (predicate(thread)) make_ready(thread);
    }
}

// ---- Block: barriers and warp operations --------------------------------------------

BarrierVotes Block::barrier(const char* operation, Site site, bool vote) {
    RuntimeScope scope(*this);
    Thread& thread = *current_thread_;
    thread.state = State::in_barrier;
    thread.operation = operation;
    thread.site = site;
    count_step();
    votes_ += vote;
    ++in_barrier_;
    // The last to arrive releases all, itself included, so that the order in which
    // they go on is that of the options.
    if (in_barrier_ == alive_) release_barrier();
    switch_to_next();
    return barrier_result_;
}

/// The hardware counts a thread that has returned as arrived. Code that relies on this
/// is easily wrong (the threads that returned never did their part of the work), so it
/// is reported.
bool Block::returned_thread_breaks_barrier() const { return alive_ < thread_count_; }

void Block::release_barrier() {
    const Thread* first = nullptr;
    for (unsigned number = 0; number < thread_count_; ++number) {
        const Thread& thread = threads_[number];
        if (thread.state != State::in_barrier) continue;
        if (first == nullptr) first = &thread;
        if (!same_site(thread.site, first->site)) {
            fail(
                cudaErrorLaunchFailure,
                "divergent barrier: threads wait in different ones"
            );
        }
    }
    if (returned_thread_breaks_barrier()) {
        fail(
            cudaErrorLaunchFailure,
            "divergent barrier: some threads returned without reaching it"
        );
    }
    barrier_result_ = {static_cast<int>(in_barrier_), votes_};
    in_barrier_ = 0;
    votes_ = 0;
    note_progress();
    wake(0, thread_count_, [](const Thread& thread) {
        return thread.state == State::in_barrier;
    });
}

void Block::warp_meet(
    unsigned mask,
    const char* operation,
    Site site,
    void* payload,
    WarpFunction function
) {
    RuntimeScope scope(*this);
    Thread& thread = *current_thread_;
    Warp& warp = warps_[thread.warp()];
    unsigned own_bit = thread.lane_bit();
    thread.state = State::in_warp_operation;
    thread.operation = operation;
    thread.site = site;
    thread.mask = mask;
    thread.payload = payload;
    count_step();

    if ((mask & own_bit) == 0) {
        fail(
            cudaErrorLaunchFailure,
            text(
                "wrong mask: lane %u (thread %u) calls %s at %s with mask 0x%08x, "
                "which does not name it",
                thread.lane(),
                unsigned{thread.number},
                operation,
                site_text(site).c_str(),
                mask
            )
        );
    }
    // Lanes that the block does not have may be named (the last warp of a block whose
    // size is no multiple of 32); lanes that have returned may not.
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

/// The lanes that wait in the same operation as a thread, with the same mask. Lanes
/// that wait for each other in different ones will never meet.
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
                "different operations or have different masks"
            );
        }
    }
    return result;
}

/// The last lane has arrived. Not inline: the lanes that wait keep a smaller stack
/// frame, and what they cost is the cache lines they touch.
__attribute__((noinline)) void Block::complete_warp_operation(
    const Thread& last, unsigned mask, WarpFunction function
) {
    std::array<void*, WARP_SIZE> payloads;
    unsigned first = last.warp() * WARP_SIZE;
    for (unsigned lanes = mask; lanes != 0; lanes &= lanes - 1) {
        unsigned lane = static_cast<unsigned>(std::countr_zero(lanes));
        payloads[lane] = threads_[first + lane].payload;
    }
    function(payloads.data(), mask);
    Warp& warp = warps_[last.warp()];
    warp.waiting &= ~mask;
    warp.mixed = true;  // unless nobody is left: the next to arrive will see
    note_progress();
    wake(first, WARP_SIZE, [mask](const Thread& other) {
        return (mask & other.lane_bit()) != 0;
    });
}

// A lane cannot know who is converged with it before the others have run as far as they
// can. So it waits until nothing else in the block moves; then the lanes of a warp that
// wait at the same call are converged, as they would be on the hardware.
unsigned Block::active_mask(Site site) {
    RuntimeScope scope(*this);
    Thread& thread = *current_thread_;
    count_step();
    wait(thread, State::in_active_mask, "__activemask", site);
    return thread.mask;
}

/// Lets the threads go on that wait in __activemask. False if there are none.
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

// ---- Block: polling -----------------------------------------------------------------

/// A thread called the emulator. All that a thread can wait with passes here, so that a
/// block which waits for what never comes ends.
void Block::count_step() {
    if (++steps_ > step_limit_) fail_for_step_limit();
}

void Block::fail_for_step_limit() {
    Thread& thread = *current_thread_;
    if (thread.state == State::running) thread.state = State::polling;
    fail(
        cudaErrorLaunchTimeout,
        text(
            "step limit: the threads of the block called the emulator more than "
            "%" PRIu64
            " times (barriers, warp operations, atomics, polls); if that is right for "
            "this kernel, set TWIN_EMULATOR_STEP_LIMIT higher",
            launch_->options.step_limit
        )
    );
}

void Block::note_progress() {
    polls_without_progress_ = 0;
    idle_rounds_ = 0;
    if (!idle_) return;
    idle_ = false;
    launch_->count_busy_worker();
}

void Block::poll(const char* operation, Site site) {
    RuntimeScope scope(*this);
    Thread& thread = *current_thread_;
    thread.operation = operation;
    thread.site = site;
    count_step();
    yield(thread);
}

void Block::after_atomic(const char* operation, Site site, const AtomicAccess& access) {
    RuntimeScope scope(*this);
    Thread& thread = *current_thread_;
    thread.operation = operation;
    thread.site = site;
    count_step();
    if (access.before != access.after) {
        note_progress();
        return;
    }
    // One atomic that changes nothing means little (most calls of atomicMax do not),
    // the same one with the same outcome again and again is polling.
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
    if (++polls_without_progress_ > alive_) wait_for_other_blocks();
    switch_to_next();
    thread.state = State::running;
}

/// Every thread of the block that can run has polled and nothing has changed: what they
/// wait for can only come from another block.
void Block::wait_for_other_blocks() {
    std::uint64_t polls = std::exchange(polls_without_progress_, 0);
    if (launch_->has_failed()) end_after_failure();
    release_active_masks();
    if (!idle_) {
        idle_ = true;
        launch_->discount_busy_worker();
    }
    // Waiting is no work of the block's own: it may take as long as others work.
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
                "endless polling: all blocks that run only poll, and %" PRIu64
                " polls (TWIN_EMULATOR_STEP_LIMIT) saw no change",
                launch_->options.step_limit
            )
        );
    }
}

// A kernel may spin on a volatile variable, where it never calls the emulator. Its
// fibre is then interrupted by a timer's signal and the others get their turn, from
// within the signal's handler. That is sound only if nothing else is interrupted: not
// the runtime (in_kernel_), and no library function that may hold a lock (the program
// counter must lie in the library or program that contains the kernel).
void Block::tick(std::uintptr_t program_counter) {
    if (!in_kernel_.load(std::memory_order_relaxed)) return;
    Thread& thread = *current_thread_;
    std::uint64_t now = events();
    bool ran_silently = thread_at_last_tick_ == &thread && events_at_last_tick_ == now;
    thread_at_last_tick_ = &thread;
    if (events_at_last_tick_ != now) silent_ticks_ = 0;
    events_at_last_tick_ = now;
    if (!ran_silently) return;
    if (idle_) note_progress();  // it found what it polled for, and now works

    Dl_info interrupted{};
    Dl_info kernel{};
    if (dladdr(reinterpret_cast<void*>(program_counter), &interrupted) == 0) return;
    if (dladdr(launch_->request.kernel, &kernel) == 0) return;
    if (interrupted.dli_fbase != kernel.dli_fbase) return;

    RuntimeScope scope(*this);
    if (launch_->has_failed()) end_after_failure();
    // Every thread gets a short turn first, in which it may free those that spin. After
    // that the turns are long and counted: it may be nothing but a long computation.
    bool had_its_turn = thread.interrupted_at == now;
    if (had_its_turn) {
        ++silent_ticks_;
        unsigned limit = launch_->options.time_limit_seconds;
        if (silent_ticks_ > std::uint64_t{limit} * TICKS_PER_SECOND) {
            auto base = reinterpret_cast<std::uintptr_t>(interrupted.dli_fbase);
            fail_for_time_limit(thread, interrupted.dli_fname, program_counter - base);
        }
        if (silent_ticks_ % TICKS_PER_SECOND != 0) return;
        launch_->make_another_block_resident();
    }
    thread.interrupted_at = now;
    // Another thread in any case, also where the order is random.
    thread.state = State::interrupted;
    if (has_fresh_thread()) {
        ready_.push(&thread);
        switch_to(fibre_for_fresh_thread());
    } else if (!ready_.empty()) {
        Thread& other = take_ready_thread();
        ready_.push(&thread);
        resume(other);
    }
    thread.state = State::running;
}

// ---- Block: faults ------------------------------------------------------------------

// A failed block ends at once: the worker goes on, the fibres never do. Destructors of
// what lies on their stacks do not run.

/// For what concerns the block: tells what every thread does.
void Block::fail(cudaError error, const std::string& what) {
    end(error, what + "\n  in " + place() + census());
}

/// For what a single thread did.
void Block::fail_at(cudaError error, const std::string& what, Site site) {
    RuntimeScope scope(*this);
    const Thread& thread = *current_thread_;
    std::string where = text(
        "\n  in thread %u = %s of ",
        unsigned{thread.number},
        index_text(thread_indices_[thread.number]).c_str()
    );
    end(error, what + " at " + site_text(site) + where + place());
}

void Block::end(cudaError error, const std::string& message) {
    error_ = error;
    message_ = message;
    switch_to(main_);
    __builtin_unreachable();
}

void Block::fail_for_time_limit(
    const Thread& thread, const char* file, std::uintptr_t offset
) {
    fail(
        cudaErrorLaunchTimeout,
        text(
            "time limit: for %u s no thread of the block called the emulator or "
            "returned; "
            "thread %u, at 0x%zx of %s, loops for ever or polls memory that nobody "
            "writes; if it is right, set TWIN_EMULATOR_TIME_LIMIT higher",
            launch_->options.time_limit_seconds,
            unsigned{thread.number},
            static_cast<std::size_t>(offset),
            file
        )
    );
}

void Block::fail_for_returned_lanes(const Thread& thread) {
    fail(
        cudaErrorLaunchFailure,
        text(
            "wrong mask: %s at %s with mask 0x%08x names lanes that have returned",
            thread.operation,
            site_text(thread.site).c_str(),
            thread.mask
        )
    );
}

std::string Block::place() const {
    dim3 grid = launch_->request.grid_size;
    dim3 block = launch_->request.block_size;
    return text(
        "block %s of grid %s, block size %s",
        index_text(block_index_).c_str(),
        index_text(grid).c_str(),
        index_text(block).c_str()
    );
}

/// What every thread of the block does: one line for each place where some of them are.
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

std::string Block::activity_of(const Thread& thread) {
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
            break;
    }
    const char* verb = thread.state == State::polling ? "polling with" : "waiting in";
    return text("%s %s at %s", verb, thread.operation, site_text(thread.site).c_str());
}

// ---- Launch -------------------------------------------------------------------------

namespace {

/// Blocks keep their memory between launches, for the thread that launches. A fork then
/// finds no lock held and no worker missing: workers live no longer than a launch.
thread_local std::vector<std::unique_ptr<Block>> free_blocks;

/// Whether this thread of the operating system runs a kernel.
thread_local bool inside_launch = false;

class InsideLaunch {
  public:
    InsideLaunch() { inside_launch = true; }
    ~InsideLaunch() { inside_launch = false; }
    InsideLaunch(const InsideLaunch&) = delete;
    InsideLaunch& operator=(const InsideLaunch&) = delete;
};

/// Timer of the calling thread's CPU time that interrupts it every 10 ms.
class Ticker {
  public:
    explicit Ticker(Block& block) : block_(block) {
        static const bool installed = install_handler();
        (void)installed;
        sigevent event{};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = TICK_SIGNAL;
        event.sigev_value.sival_ptr = this;
        event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
        if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) != 0) {
            throw std::system_error(errno, std::generic_category(), "timer_create");
        }
        itimerspec interval{{0, TICK_NANOSECONDS}, {0, TICK_NANOSECONDS}};
        timer_settime(timer_, 0, &interval, nullptr);
    }
    ~Ticker() { timer_delete(timer_); }
    Ticker(const Ticker&) = delete;
    Ticker& operator=(const Ticker&) = delete;

  private:
    // SA_NODEFER: the handler may leave by switching to another fibre.
    static bool install_handler() {
        struct sigaction action{};
        action.sa_sigaction = handle;
        action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
        sigaction(TICK_SIGNAL, &action, &previous_action);
        return true;
    }

    static void handle(int signal, siginfo_t* info, void* context) {
        auto* ticker = static_cast<Ticker*>(info->si_value.sival_ptr);
        if (info->si_code == SI_TIMER && ticker->module_ == &previous_action) {
            int saved_errno = errno;
            ticker->block_.tick(program_counter(static_cast<ucontext_t*>(context)));
            errno = saved_errno;
        } else if (previous_action.sa_flags & SA_SIGINFO) {
            previous_action.sa_sigaction(signal, info, context);
        } else if (
            previous_action.sa_handler != SIG_DFL &&
            previous_action.sa_handler != SIG_IGN
        ) {
            previous_action.sa_handler(signal);
        }
    }

    static struct sigaction previous_action;

    // First, and different in each library that holds an emulator: the handler of one
    // passes the ticks of another on.
    const void* module_ = &previous_action;
    Block& block_;
    timer_t timer_{};
};

struct sigaction Ticker::previous_action{};

/// The floating-point environment of a kernel: round to nearest, denormals kept,
/// whatever the program that launches it has set.
class DefaultFloatingPoint {
  public:
    DefaultFloatingPoint() {
        std::fegetenv(&saved_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultFloatingPoint() { std::fesetenv(&saved_); }
    DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
    DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

  private:
    std::fenv_t saved_;
};

}  // namespace

cudaError Launch::run() {
    free_blocks_ = &free_blocks;
    // One worker for every 1024 threads: for less, to start it takes longer than the
    // work itself.
    std::uint64_t threads = block_count_ * request.block_size.x * request.block_size.y *
                            request.block_size.z;
    std::uint64_t workers =
        std::min({std::uint64_t{options.workers}, block_count_, 1 + threads / 1024});
    {
        std::lock_guard lock(mutex_);
        for (std::uint64_t i = 1; i < workers; ++i) start_worker();
    }
    work();
    // A worker may start another one until it ends.
    for (;;) {
        std::vector<std::thread> running;
        {
            std::lock_guard lock(mutex_);
            running.swap(workers_);
        }
        if (running.empty()) break;
        for (std::thread& worker : running) worker.join();
    }
    // What a launch that waited for itself needed beyond the usual is not kept.
    if (free_blocks.size() > options.workers) free_blocks.resize(options.workers);
    if (!failed_) return cudaSuccess;
    return report(error_, message_.c_str());
}

/// Call with the mutex held. False if the system has no thread left: the blocks then
/// take longer.
bool Launch::start_worker() {
    count_busy_worker();
    try {
        workers_.emplace_back(&Launch::work, this);
        return true;
    } catch (const std::system_error&) {
        discount_busy_worker();
        return false;
    }
}

/// What a worker does, from when it is counted as busy.
void Launch::work() {
    try {
        run_blocks();
    } catch (const std::exception& exception) {
        fail(cudaErrorUnknown, text("the emulator failed: %s", exception.what()));
    }
    discount_busy_worker();
}

void Launch::run_blocks() {
    std::uint64_t number = 0;
    if (!take_block(number)) return;
    std::unique_ptr<Block> block = borrow_block();
    block->enter(*this);
    {
        InsideLaunch inside;
        DefaultFloatingPoint floating_point;
        Ticker ticker(*block);
        do {
            if (!block->run(number, index_of(number))) {
                fail(block->error(), block->message());
            }
        } while (take_block(number));
    }
    std::lock_guard lock(mutex_);
    free_blocks_->push_back(std::move(block));
}

std::unique_ptr<Block> Launch::borrow_block() {
    {
        std::lock_guard lock(mutex_);
        if (!free_blocks_->empty()) {
            std::unique_ptr<Block> block = std::move(free_blocks_->back());
            free_blocks_->pop_back();
            return block;
        }
    }
    return std::make_unique<Block>();
}

/// The first failure is the launch's.
void Launch::fail(cudaError error, const std::string& message) {
    std::lock_guard lock(mutex_);
    if (!failed_) {
        error_ = error;
        message_ = kernel_name(request.kernel) + ": " + message;
    }
    failed_ = true;
}

bool Launch::take_block(std::uint64_t& number) {
    if (failed_) return false;
    number = next_block_++;
    return number < block_count_;
}

/// A step that visits every block once in an order that looks random: any number
/// without a common divisor with the number of blocks.
std::uint64_t Launch::choose_random_step() const {
    Random random(options.seed);
    std::uint64_t step = 0;
    do {
        step = 1 + random.below(std::min<std::uint64_t>(block_count_, 1u << 31));
    } while (std::gcd(step, block_count_) != 1);
    return step;
}

/// The place in the grid of the block that is started as number `number`.
uint3 Launch::index_of(std::uint64_t number) const {
    if (options.order == Order::reverse) number = block_count_ - 1 - number;
    if (options.order == Order::random) {
        auto product = static_cast<unsigned __int128>(number) * random_step_;
        number = static_cast<std::uint64_t>((product + options.seed) % block_count_);
    }
    dim3 grid = request.grid_size;
    return {
        static_cast<unsigned>(number % grid.x),
        static_cast<unsigned>(number / grid.x % grid.y),
        static_cast<unsigned>(number / grid.x / grid.y)
    };
}

bool Launch::make_another_block_resident() {
    if (failed_ || next_block_ >= block_count_) return false;
    std::lock_guard lock(mutex_);
    if (workers_.size() + 1 >= MAX_RESIDENT_BLOCKS) return false;
    return start_worker();
}

namespace {

/// The opt-in of each kernel to more than 48 KiB of dynamic shared memory.
class SharedMemoryLimits {
  public:
    void set(const void* kernel, std::size_t bytes) {
        std::lock_guard lock(mutex_);
        limits_[kernel] = bytes;
    }
    std::size_t get(const void* kernel) {
        std::lock_guard lock(mutex_);
        auto limit = limits_.find(kernel);
        return limit == limits_.end() ? SHARED_BYTES_WITHOUT_OPT_IN : limit->second;
    }

  private:
    std::mutex mutex_;
    std::unordered_map<const void*, std::size_t> limits_;
};

SharedMemoryLimits shared_memory_limits;

/// What the CUDA runtime would refuse, in words.
cudaError check_shape(const LaunchRequest& request, std::string& message) {
    dim3 grid = request.grid_size;
    dim3 block = request.block_size;
    auto exceeds = [](dim3 size, dim3 limit) {
        return size.x == 0 || size.y == 0 || size.z == 0 || size.x > limit.x ||
               size.y > limit.y || size.z > limit.z;
    };
    if (exceeds(grid, MAX_GRID_SIZE)) {
        message = text(
            "impossible launch: grid %s; each size must be from 1 to %s",
            index_text(grid).c_str(),
            index_text(MAX_GRID_SIZE).c_str()
        );
        return cudaErrorInvalidConfiguration;
    }
    if (exceeds(block, MAX_BLOCK_SIZE) ||
        std::uint64_t{block.x} * block.y * block.z > MAX_THREADS) {
        message = text(
            "impossible launch: block size %s; each must be from 1 to %s and their "
            "product at most %u",
            index_text(block).c_str(),
            index_text(MAX_BLOCK_SIZE).c_str(),
            MAX_THREADS
        );
        return cudaErrorInvalidConfiguration;
    }
    std::size_t limit = shared_memory_limits.get(request.kernel);
    if (request.shared_bytes > limit) {
        message = text(
            "impossible launch: %zu bytes of dynamic shared memory, the limit of this "
            "kernel is %zu (cudaFuncSetAttribute raises it to at most %zu)",
            request.shared_bytes,
            limit,
            MAX_SHARED_BYTES
        );
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

}  // namespace

cudaError launch(const LaunchRequest& request) {
    if (request.kernel == nullptr) {
        return report(cudaErrorInvalidDeviceFunction, "impossible launch: no kernel");
    }
    auto refuse = [&request](cudaError error, const std::string& message) {
        return report(error, (kernel_name(request.kernel) + ": " + message).c_str());
    };
    if (inside_launch) return refuse(cudaErrorNotSupported, "launched from a kernel");
    std::string message;
    if (cudaError error = check_shape(request, message)) return refuse(error, message);
    Options options = read_options();
    if (!options.error.empty()) return refuse(cudaErrorInvalidValue, options.error);
    return Launch(request, options).run();
}

cudaError check_attributes(const void* kernel, const cudaLaunchConfig_t& config) {
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        const cudaLaunchAttribute& attribute = config.attrs[i];
        const char* unsupported = nullptr;
        if (attribute.id == cudaLaunchAttributeClusterDimension) {
            dim3 size = attribute.val.clusterDim;
            if (size.x * size.y * size.z > 1) unsupported = "thread block clusters";
        } else if (attribute.id == cudaLaunchAttributeCooperative) {
            if (attribute.val.cooperative) unsupported = "cooperative launches";
        } else if (
            // Overlap with the previous kernel is permission, not obligation.
            attribute.id != cudaLaunchAttributeIgnore &&
            attribute.id != cudaLaunchAttributeProgrammaticStreamSerialization
        ) {
            unsupported = "this launch attribute";
        }
        if (unsupported == nullptr) continue;
        std::string message = text(
            "%s: the emulator does not model %s",
            kernel_name(kernel).c_str(),
            unsupported
        );
        return report(cudaErrorNotSupported, message.c_str());
    }
    return cudaSuccess;
}

cudaError report(cudaError error, const char* message) {
    last_error = {error, error, message};
    return error;
}

// ---- What device code calls ---------------------------------------------------------

namespace {

Block& this_block() { return *this_thread().block; }

}  // namespace

unsigned char* dynamic_shared() { return this_block().shared_memory(); }

unsigned lane() { return this_thread().thread->lane(); }

BarrierVotes barrier(const char* operation, Site site, bool vote) {
    return this_block().barrier(operation, site, vote);
}

void warp_meet(
    unsigned mask,
    const char* operation,
    Site site,
    void* payload,
    WarpFunction function
) {
    this_block().warp_meet(mask, operation, site, payload, function);
}

std::uint64_t shuffle(
    ShuffleKind kind,
    unsigned mask,
    std::uint64_t value,
    unsigned operand,
    int width,
    const char* operation,
    Site site
) {
    if (width < 1 || width > 32 || !std::has_single_bit(unsigned(width))) {
        this_block().fail_at(
            cudaErrorLaunchFailure,
            text("width %d of %s: not a power of two up to 32", width, operation),
            site
        );
    }
    // As in the PTX manual: a lane outside its own segment is not read.
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
    // The value of a lane outside the mask is undefined. All ones is a NaN as a float
    // of any width, so that a kernel which uses it is noticed.
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

unsigned active_mask(Site site) { return this_block().active_mask(site); }

void poll(const char* operation, Site site) { this_block().poll(operation, site); }

void after_atomic(const char* operation, Site site, const AtomicAccess& access) {
    this_block().after_atomic(operation, site, access);
}

void trap(Site site) { this_block().fail_at(cudaErrorLaunchFailure, "__trap()", site); }

void misaligned_access(
    const char* operation, Site site, const void* address, std::size_t alignment
) {
    this_block().fail_at(
        cudaErrorMisalignedAddress,
        text(
            "%s of address %p, which is no multiple of %zu,",
            operation,
            address,
            alignment
        ),
        site
    );
}

void assertion_failed(
    const char* expression, const char* file, int line, const char* function
) {
    if (!inside_launch) {
        std::fprintf(
            stderr,
            "%s:%d: %s: Assertion `%s' failed.\n",
            file,
            line,
            function,
            expression
        );
        std::abort();
    }
    this_block().fail_at(
        cudaErrorAssert, text("assertion `%s' failed", expression), {file, line}
    );
}

std::int64_t clock_nanoseconds() {
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace emulator

// ---- Host API -----------------------------------------------------------------------

namespace {

struct ErrorText {
    cudaError_t code;
    const char* name;
    const char* description;
};

constexpr ErrorText ERROR_TEXTS[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration,
     "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidDeviceFunction,
     "cudaErrorInvalidDeviceFunction",
     "invalid device function"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle,
     "cudaErrorInvalidResourceHandle",
     "invalid resource handle"},
    {cudaErrorLaunchOutOfResources,
     "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorLaunchTimeout,
     "cudaErrorLaunchTimeout",
     "the launch timed out and was terminated"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText* find_error(cudaError_t error) {
    for (const ErrorText& entry : ERROR_TEXTS) {
        if (entry.code == error) return &entry;
    }
    return nullptr;
}

cudaError_t invalid_value(const char* message) {
    return emulator::report(cudaErrorInvalidValue, message);
}

}  // namespace

const char* cudaGetErrorString(cudaError_t error) {
    const emulator::LastError& last = emulator::last_error;
    if (error != cudaSuccess && error == last.described) return last.message.c_str();
    const ErrorText* entry = find_error(error);
    return entry ? entry->description : "unrecognized error code";
}

const char* cudaGetErrorName(cudaError_t error) {
    const ErrorText* entry = find_error(error);
    return entry ? entry->name : "unrecognized error code";
}

cudaError_t cudaGetLastError() {
    return std::exchange(emulator::last_error.code, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() { return emulator::last_error.code; }

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (device == 0) return cudaSuccess;
    return emulator::report(cudaErrorInvalidDevice, "the emulator has one device, 0");
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (cudaError_t error = cudaSetDevice(device)) return error;
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:
            *value = emulator::MAX_THREADS;
            return cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            *value = emulator::SHARED_BYTES_WITHOUT_OPT_IN;
            return cudaSuccess;
        case cudaDevAttrWarpSize:
            *value = emulator::WARP_SIZE;
            return cudaSuccess;
        case cudaDevAttrMultiProcessorCount:
            *value = emulator::MULTIPROCESSORS;
            return cudaSuccess;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            *value = emulator::THREADS_PER_MULTIPROCESSOR;
            return cudaSuccess;
        case cudaDevAttrComputeCapabilityMajor:
            *value = 9;
            return cudaSuccess;
        case cudaDevAttrComputeCapabilityMinor:
            *value = 0;
            return cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            *value = emulator::SHARED_BYTES_PER_MULTIPROCESSOR;
            return cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = emulator::MAX_SHARED_BYTES;
            return cudaSuccess;
    }
    return invalid_value("the emulated device does not know this attribute");
}

cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
    constexpr std::size_t ALIGNMENT = 256;  // as on the GPU
    std::size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *pointer = bytes == 0 ? nullptr : std::aligned_alloc(ALIGNMENT, rounded);
    if (bytes != 0 && *pointer == nullptr) {
        return emulator::report(cudaErrorMemoryAllocation, "cudaMalloc: out of memory");
    }
    if (bytes != 0) std::memset(*pointer, 0xFF, rounded);
    return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
    std::free(pointer);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(
    void* target, const void* source, std::size_t bytes, cudaMemcpyKind
) {
    std::memmove(target, source, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(
    void* target,
    const void* source,
    std::size_t bytes,
    cudaMemcpyKind kind,
    cudaStream_t
) {
    return cudaMemcpy(target, source, bytes, kind);
}

cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes) {
    std::memset(pointer, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t) {
    return cudaMemset(pointer, value, bytes);
}

cudaError_t cudaFuncSetAttribute(
    const void* kernel, cudaFuncAttribute attribute, int value
) {
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
        return invalid_value(
            "cudaFuncSetAttribute: the emulator knows no such attribute"
        );
    }
    if (value < 0 || static_cast<std::size_t>(value) > emulator::MAX_SHARED_BYTES) {
        std::string message = emulator::text(
            "%s: %d bytes of dynamic shared memory asked for, the device has %zu",
            emulator::kernel_name(kernel).c_str(),
            value,
            emulator::MAX_SHARED_BYTES
        );
        return invalid_value(message.c_str());
    }
    emulator::shared_memory_limits.set(kernel, static_cast<std::size_t>(value));
    return cudaSuccess;
}

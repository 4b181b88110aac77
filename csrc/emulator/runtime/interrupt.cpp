// Interrupts threads that spin on a volatile variable, or compute for long, without
// calling the emulator.
//
// The handler of a timer's signal switches from such a fibre to another one. That is
// sound only in the kernel's own code: not in the runtime (in_kernel_ tells), and not
// in a library function that may hold a lock (the program counter must lie in the
// module that contains the kernel).

#include "interrupt.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "block.h"
#include "cluster.h"
#include "launch.h"

namespace emulator {

constexpr long TICK_NANOSECONDS = 10'000'000;
constexpr unsigned TICKS_PER_SECOND = 1'000'000'000 / TICK_NANOSECONDS;
constexpr int TICK_SIGNAL = SIGURG;

// ---- The timer ----------------------------------------------------------------------

struct sigaction Ticker::previous_action{};

Ticker::Ticker(Cluster& cluster) : cluster_(cluster) {
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

// SA_NODEFER, because the handler may leave by switching to another fibre.
bool Ticker::install_handler() {
    struct sigaction action{};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
    sigaction(TICK_SIGNAL, &action, &previous_action);
    return true;
}

void Ticker::handle(int signal, siginfo_t* info, void* context) {
    auto* ticker = static_cast<Ticker*>(info->si_value.sival_ptr);
    if (info->si_code == SI_TIMER && ticker->module_ == &previous_action) {
        int saved_errno = errno;
        ticker->cluster_.tick(program_counter(static_cast<ucontext_t*>(context)));
        errno = saved_errno;
    } else if (previous_action.sa_flags & SA_SIGINFO) {
        previous_action.sa_sigaction(signal, info, context);
    } else if (
        previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN
    ) {
        previous_action.sa_handler(signal);
    }
}

// ---- A tick -------------------------------------------------------------------------

// Passes the tick on to the running block, if the signal has interrupted its kernel.
// Other blocks may have run by the time the block's tick returns. A tick that has not,
// because the checker looks at an access of the kernel's, counts with the next one:
// a loop of accesses is rarely interrupted between two of them.
void Cluster::tick(std::uintptr_t program_counter) {
    ++ticks_;
    for (const auto& block : blocks_) {
        if (!block->is_in_kernel()) continue;
        const unsigned ticks = std::exchange(ticks_, 0);
        return block->tick(program_counter, ticks);
    }
}

void Block::tick(std::uintptr_t program_counter, unsigned ticks) {
    Thread& thread = *current_thread_;
    std::uint64_t now = events();
    bool ran_silently = thread_at_last_tick_ == &thread && events_at_last_tick_ == now;
    thread_at_last_tick_ = &thread;
    if (events_at_last_tick_ != now) silent_ticks_ = 0;
    events_at_last_tick_ = now;
    if (!ran_silently) return;
    if (idle_) note_progress();  // the thread no longer polls: it computes

    Dl_info interrupted{};
    Dl_info kernel{};
    if (dladdr(reinterpret_cast<void*>(program_counter), &interrupted) == 0) return;
    if (dladdr(launch_->request.kernel, &kernel) == 0) return;
    if (interrupted.dli_fbase != kernel.dli_fbase) return;

    RuntimeScope scope(*this);
    if (launch_->has_failed()) end_after_failure();
    // Every thread first gets a short turn, in which it may release those that spin.
    // Later turns are long and counted towards the time limit: the thread may just be
    // computing.
    bool had_its_turn = thread.interrupted_at == now;
    if (had_its_turn) {
        const std::uint64_t seconds_before = silent_ticks_ / TICKS_PER_SECOND;
        silent_ticks_ += ticks;
        unsigned limit = launch_->options.time_limit_seconds;
        if (silent_ticks_ > std::uint64_t{limit} * TICKS_PER_SECOND) {
            auto base = reinterpret_cast<std::uintptr_t>(interrupted.dli_fbase);
            fail_for_time_limit(thread, interrupted.dli_fname, program_counter - base);
        }
        if (silent_ticks_ / TICKS_PER_SECOND == seconds_before) return;
        launch_->make_another_block_resident();
    }
    thread.interrupted_at = now;
    // The next thread is a different one, even in random order.
    thread.state = State::interrupted;
    if (has_fresh_thread()) {
        ready_.push(&thread);
        fibres_.switch_to(fibres_.take());
    } else if (!ready_.empty()) {
        Thread& other = take_ready_thread();
        ready_.push(&thread);
        resume(other);
    } else if (!cluster_->is_alone()) {
        ready_.push(&thread);
        is_polling_ = true;
        let_cluster_run();
    }
    thread.state = State::running;
}

}  // namespace emulator

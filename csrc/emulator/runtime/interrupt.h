// The timer that interrupts threads that do not call the emulator.
#pragma once

#include <signal.h>
#include <time.h>

#include "../runtime.h"

namespace [[gnu::visibility("hidden")]] emulator {

class Cluster;

/// Interrupts the calling thread every 10 ms of its processor time to call
/// cluster.tick(). The blocks of a cluster share one timer: signals of several would
/// pile up on the stack of a fibre, where each may take 11 KB.
class Ticker {
  public:
    explicit Ticker(Cluster& cluster);
    ~Ticker() { timer_delete(timer_); }
    Ticker(const Ticker&) = delete;
    Ticker& operator=(const Ticker&) = delete;

  private:
    static bool install_handler();
    static void handle(int signal, siginfo_t* info, void* context);

    static struct sigaction previous_action;

    // The first member, and different in each library with an emulator: a handler
    // passes on the ticks of another library's timer.
    const void* module_ = &previous_action;
    Cluster& cluster_;
    timer_t timer_{};
};

}  // namespace emulator

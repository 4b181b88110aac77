// The timer that interrupts threads which never call the emulator.
#pragma once

#include <signal.h>
#include <time.h>

#include "../runtime.h"

namespace [[gnu::visibility("hidden")]] emulator {

class Cluster;

/// Interrupts the calling thread every 10 ms of its processor time, for cluster.tick().
/// There is one for all blocks: signals of several that are due at a time would pile up
/// on the stack of the fibre, where each of them may take 11 KB.
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

    // First, and different in each library that holds an emulator: the handler of one
    // passes the ticks of another on.
    const void* module_ = &previous_action;
    Cluster& cluster_;
    timer_t timer_{};
};

}  // namespace emulator

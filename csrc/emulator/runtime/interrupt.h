// The timer that interrupts threads which never call the emulator.
#pragma once

#include <signal.h>
#include <time.h>

#include "../runtime.h"

namespace [[gnu::visibility("hidden")]] emulator {

/// Interrupts the calling thread every 10 ms of its processor time, for block.tick().
class Ticker {
  public:
    explicit Ticker(Block& block);
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
    Block& block_;
    timer_t timer_{};
};

}  // namespace emulator

// A cluster: blocks that run together, on one thread of the operating system, and
// access each other's shared memory. A block outside of a cluster is a cluster of one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../runtime.h"
#include "block.h"

namespace [[gnu::visibility("hidden")]] emulator {

class Launch;

class Cluster {
  public:
    Cluster(Launch& launch, const std::vector<std::unique_ptr<Block>>& blocks);

    /// Runs the blocks from `first` on. False if one failed.
    bool run(std::uint64_t number, uint3 first);

    /// Called by the timer's signal handler, in the middle of any code.
    void tick(std::uintptr_t program_counter);

    cudaError error() const { return error_; }
    const std::string& message() const { return message_; }

    std::size_t size() const { return blocks_.size(); }
    Block& block(std::size_t rank) { return *blocks_[rank]; }
    bool is_alone() const { return blocks_.size() == 1; }

    /// Counts the arrival of a thread at the barrier of the cluster.
    void count_arrival();
    /// Releases the waiting threads if all threads that have not returned wait there.
    void end_barrier_if_complete();

  private:
    bool run_together();
    bool go_on(Block& block);
    bool finish_something_or_fail(bool only_polls);
    void fail_for_deadlock();

    Launch& launch_;
    const std::vector<std::unique_ptr<Block>>& blocks_;
    std::vector<Block*> order_;  // of their turns
    Random random_;
    unsigned ticks_ = 0;  // that have not interrupted a kernel, since one did
    unsigned arrived_ = 0;

    cudaError error_ = cudaSuccess;
    std::string message_;
};

}  // namespace emulator

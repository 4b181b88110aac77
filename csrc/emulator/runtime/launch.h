// A launch: the blocks of one grid, which several threads of the operating system take
// one after another.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../host/api.h"
#include "../runtime.h"
#include "options.h"

namespace [[gnu::visibility("hidden")]] emulator {

/// Whether this thread of the operating system runs a kernel.
bool inside_launch();

/// Refuses sizes that are beyond the device.
cudaError check_size(const LaunchRequest& request);

class Launch {
  public:
    Launch(const LaunchRequest& request, const Options& options);

    cudaError run();

    bool has_failed() const { return failed_; }

    /// Whether any worker does more than poll.
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

    /// The linear number of a block in the grid.
    std::uint64_t number_of(uint3 index) const;

    const LaunchRequest request;
    const Options options;

  private:
    bool start_worker();
    void work();
    void run_blocks();
    std::unique_ptr<Block> borrow_block();
    bool take_cluster(std::uint64_t& number);
    uint3 first_index_of(std::uint64_t number) const;
    std::uint64_t choose_random_step() const;
    void fail(cudaError error, const std::string& message);

    const std::uint64_t cluster_count_;
    const std::uint64_t random_step_;
    std::atomic<std::uint64_t> next_cluster_{0};
    std::atomic<int> busy_workers_{1};  // the calling thread is one
    std::atomic<std::uint64_t> idle_polls_{0};
    std::atomic<bool> failed_{false};

    std::mutex mutex_;  // guards what follows
    std::vector<std::thread> workers_;
    std::vector<std::unique_ptr<Block>>& free_blocks_;
    cudaError error_ = cudaSuccess;
    std::string message_;
};

}  // namespace emulator

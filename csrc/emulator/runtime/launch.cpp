// Launches: which worker runs which block, in which order, and the first failure.

#include "launch.h"

#include <algorithm>
#include <cfenv>
#include <exception>
#include <numeric>
#include <system_error>
#include <utility>

#include "../host/rehearsal.h"
#include "../observer.h"
#include "block.h"
#include "cluster.h"
#include "errors.h"
#include "interrupt.h"

namespace emulator {
namespace {

/// Blocks that the launching thread keeps between launches, for their memory. Workers
/// live no longer than a launch, so that a fork between launches finds no lock held and
/// misses no thread.
thread_local std::vector<std::unique_ptr<Block>> free_blocks;

thread_local bool runs_kernel = false;
thread_local Rehearsal* rehearsal = nullptr;

class InsideLaunch {
  public:
    InsideLaunch() { runs_kernel = true; }
    ~InsideLaunch() { runs_kernel = false; }
    InsideLaunch(const InsideLaunch&) = delete;
    InsideLaunch& operator=(const InsideLaunch&) = delete;
};

/// Sets the floating-point environment of a kernel, which rounds to nearest and keeps
/// denormals, whatever the launching program has set.
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

std::uint64_t volume(dim3 size) { return std::uint64_t{size.x} * size.y * size.z; }

}  // namespace

bool inside_launch() { return runs_kernel; }

Rehearsal::Rehearsal() { rehearsal = this; }

Rehearsal::~Rehearsal() { rehearsal = nullptr; }

cudaError launch(const LaunchRequest& request) {
    if (rehearsal != nullptr) {
        rehearsal->cluster_sizes.push_back(request.cluster_size);
        return cudaSuccess;
    }
    if (request.kernel == nullptr) {
        return report(
            cudaErrorInvalidDeviceFunction,
            "impossible launch: the kernel is a null pointer"
        );
    }
    if (inside_launch()) {
        return report(
            request.kernel, cudaErrorNotSupported,
            "impossible launch: the emulator does not model launches from a kernel"
        );
    }
    if (cudaError error = check_size(request)) return error;
    Options options = read_options();
    if (!options.error.empty()) {
        return report(request.kernel, cudaErrorInvalidValue, options.error);
    }
    return Launch(request, options).run();
}

Launch::Launch(const LaunchRequest& request, const Options& options)
    : request(request),
      options(options),
      cluster_count_(volume(request.grid_size) / volume(request.cluster_size)),
      random_step_(choose_random_step()),
      free_blocks_(free_blocks) {}

// ---- Workers ------------------------------------------------------------------------

cudaError Launch::run() {
    // At most one worker for every 1024 threads: to start one takes longer than to run
    // fewer.
    std::uint64_t threads = volume(request.grid_size) * volume(request.block_size);
    std::uint64_t workers =
        std::min({std::uint64_t{options.workers}, cluster_count_, 1 + threads / 1024});
    if (observer != nullptr) {
        workers = 1;  // makes the first fault found the same in every run
        observer->launch_begins();
    }
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
    // Extra blocks, of a launch whose blocks waited for each other, are not kept.
    std::size_t kept = options.workers * volume(request.cluster_size);
    if (free_blocks_.size() > kept) free_blocks_.resize(kept);
    return failed_ ? report(request.kernel, error_, message_) : cudaSuccess;
}

bool Launch::make_another_block_resident() {
    if (failed_ || next_cluster_ >= cluster_count_) return false;
    std::lock_guard lock(mutex_);
    if (workers_.size() + 1 >= MAX_RESIDENT_BLOCKS) return false;
    return start_worker();
}

/// Starts a worker; call with the mutex held. False if the system has no thread left:
/// the launch then takes longer.
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

/// The main function of a worker, which has been counted as busy.
void Launch::work() {
    try {
        run_blocks();
    } catch (const std::exception& exception) {
        fail(cudaErrorUnknown, std::string("the emulator failed: ") + exception.what());
    }
    discount_busy_worker();
}

void Launch::run_blocks() {
    std::uint64_t number = 0;
    if (!take_cluster(number)) return;
    std::vector<std::unique_ptr<Block>> blocks(volume(request.cluster_size));
    for (std::unique_ptr<Block>& block : blocks) block = borrow_block();
    {
        Cluster cluster(*this, blocks);
        InsideLaunch inside;
        DefaultFloatingPoint floating_point;
        Ticker ticker(cluster);
        do {
            if (!cluster.run(number, first_index_of(number))) {
                fail(cluster.error(), cluster.message());
            }
        } while (take_cluster(number));
    }
    std::lock_guard lock(mutex_);
    for (std::unique_ptr<Block>& block : blocks) {
        free_blocks_.push_back(std::move(block));
    }
}

std::unique_ptr<Block> Launch::borrow_block() {
    {
        std::lock_guard lock(mutex_);
        if (!free_blocks_.empty()) {
            std::unique_ptr<Block> block = std::move(free_blocks_.back());
            free_blocks_.pop_back();
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
        message_ = message;
    }
    failed_ = true;
}

// ---- The order of the clusters ------------------------------------------------------

bool Launch::take_cluster(std::uint64_t& number) {
    if (failed_) return false;
    number = next_cluster_++;
    return number < cluster_count_;
}

/// The place in the grid of the first block of the cluster that is started `number`-th.
uint3 Launch::first_index_of(std::uint64_t number) const {
    if (options.order == Order::reverse) number = cluster_count_ - 1 - number;
    if (options.order == Order::random) {
        auto product = static_cast<unsigned __int128>(number) * random_step_;
        number = static_cast<std::uint64_t>((product + options.seed) % cluster_count_);
    }
    dim3 size = request.cluster_size;
    std::uint64_t columns = request.grid_size.x / size.x;
    std::uint64_t rows = request.grid_size.y / size.y;
    return {
        static_cast<unsigned>(number % columns) * size.x,
        static_cast<unsigned>(number / columns % rows) * size.y,
        static_cast<unsigned>(number / columns / rows) * size.z
    };
}

std::uint64_t Launch::number_of(uint3 index) const {
    dim3 grid = request.grid_size;
    return index.x +
           std::uint64_t{grid.x} * (index.y + std::uint64_t{grid.y} * index.z);
}

/// A step that visits every cluster once in an order that looks random: any number
/// without a common divisor with the number of clusters.
std::uint64_t Launch::choose_random_step() const {
    Random random(options.seed);
    std::uint64_t step = 0;
    do {
        step = 1 + random.below(std::min<std::uint64_t>(cluster_count_, 1u << 31));
    } while (std::gcd(step, cluster_count_) != 1);
    return step;
}

}  // namespace emulator

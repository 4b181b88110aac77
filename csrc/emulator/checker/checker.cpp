#include "checker.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../emulator_checker.h"
#include "../host/api.h"
#include "block_state.h"
#include "location.h"
#include "memory.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

namespace {

/// The states of the blocks that this thread of the operating system runs: one
/// cluster's.
thread_local std::vector<std::unique_ptr<BlockState>> own_states;
thread_local std::vector<BlockState*> cluster;
thread_local std::vector<HappensBefore*> orders_of_cluster;
thread_local BlockState* running_block = nullptr;

/// While it exists, call-outs from the checker's own code have no effect, and the timer
/// switches no threads.
class KernelPause {
  public:
    explicit KernelPause(BlockState* block)
        : block_(block != nullptr && block->pause_kernel() ? block : nullptr) {}
    ~KernelPause() {
        if (block_ != nullptr) block_->resume_kernel();
    }
    KernelPause(const KernelPause&) = delete;
    KernelPause& operator=(const KernelPause&) = delete;

    BlockState* block() { return block_; }

  private:
    BlockState* block_;
};

// ---- Events from the runtime --------------------------------------------------------

std::mutex last_kernel_mutex;
const void* last_kernel = nullptr;

class Checker final : public Observer {
  public:
    Checker() { observer = this; }

    void memory_allocated(
        const char* function, const void* address, std::size_t bytes
    ) override {
        memory.add(
            {.name = std::string("memory from ") + function,
             .begin = reinterpret_cast<std::uintptr_t>(address),
             .bytes = bytes,
             .is_tensor = false,
             .use = EMULATOR_WORKSPACE,
             .shadow = nullptr,
             .written = {}}
        );
    }
    void memory_freed(const void* address) override {
        memory.remove(reinterpret_cast<std::uintptr_t>(address));
    }
    void host_has_written(const void* address, std::size_t bytes) override {
        memory.note_written(reinterpret_cast<std::uintptr_t>(address), bytes);
    }
    void launch_begins() override {
        ++launch_number;
        blocks_communicate = false;
    }
    void block_begins(const BlockFacts& block) override {
        while (own_states.size() < block.cluster_size) {
            own_states.push_back(std::make_unique<BlockState>());
        }
        if (block.rank == 0) {
            cluster.clear();
            orders_of_cluster.clear();
        }
        running_block = own_states[block.rank].get();
        cluster.push_back(running_block);
        orders_of_cluster.push_back(&running_block->order);
        running_block->begin(block, cluster);
        running_block->order.begin(block, orders_of_cluster);
        std::lock_guard lock(last_kernel_mutex);
        last_kernel = block.kernel;
    }
    void block_ends(unsigned rank) override {
        own_states[rank]->end();
        running_block = nullptr;
    }
    void block_goes_on(unsigned rank) override {
        running_block = own_states[rank].get();
    }
    void cluster_barrier_completes() override {
        running_block->order.complete_cluster_barrier();
    }
    void barrier_completes() override { running_block->complete_barrier(); }
    void warp_barrier_completes(unsigned warp, unsigned lanes) override {
        running_block->order.complete_warp_barrier(warp, lanes);
    }
    void accesses(
        const void* address, std::size_t bytes, Access kind, Site site
    ) override {
        KernelPause pause(running_block);
        running_block->access(
            reinterpret_cast<std::uintptr_t>(address), bytes, kind, location_of(site),
            false
        );
    }
    void threads_meet(const unsigned* threads, std::size_t count) override {
        running_block->order.threads_meet(threads, count);
    }
    void mbarrier_begins(MbarrierId mbarrier) override {
        running_block->order.mbarrier_begins(mbarrier);
    }
    void mbarrier_is_arrived_at(MbarrierId mbarrier, unsigned thread) override {
        running_block->order.mbarrier_is_arrived_at(mbarrier, thread);
    }
    void mbarrier_phase_ends(MbarrierId mbarrier) override {
        running_block->order.mbarrier_phase_ends(mbarrier);
    }
    void mbarrier_is_awaited(MbarrierId mbarrier, unsigned thread) override {
        running_block->order.mbarrier_is_awaited(mbarrier, thread);
    }
    void writes_are_published(unsigned thread) override {
        running_block->order.writes_are_published(thread);
    }
    std::uint32_t agent_begins(
        unsigned agent, const unsigned* threads, std::size_t count
    ) override {
        return running_block->order.agent_begins(
            agent, threads, count, running_block->running_thread()
        );
    }
    void agent_accesses(
        const void* address, std::size_t bytes, Access kind, Site site
    ) override {
        auto begin = reinterpret_cast<std::uintptr_t>(address);
        running_block->agent_accesses(begin, bytes, kind, location_of(site));
    }
    void agent_has_written(const void* address, std::size_t bytes) override {
        auto begin = reinterpret_cast<std::uintptr_t>(address);
        running_block->agent_has_written(begin, bytes);
    }
    void mbarrier_hears_of(
        MbarrierId mbarrier, unsigned rank, unsigned agent, std::uint32_t time
    ) override {
        running_block->order.mbarrier_hears_of(mbarrier, rank, agent, time);
    }
    void agent_is_awaited(
        unsigned agent, std::uint32_t time, unsigned thread
    ) override {
        running_block->order.agent_is_awaited(agent, time, thread);
    }
};

Checker checker;

void check(
    const void* pointer, std::size_t bytes, Access kind, const void* code_address,
    bool is_volatile
) {
    auto address = reinterpret_cast<std::uintptr_t>(pointer);
    auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (address / STACK_BYTES == frame / STACK_BYTES) return;  // the thread's own stack
    KernelPause pause(running_block);
    if (BlockState* block = pause.block()) {
        block->access(address, bytes, kind, location_of(code_address), is_volatile);
    }
}

}  // namespace

void check_access(
    const void* address, std::size_t bytes, Access kind, const void* code_address
) {
    check(address, bytes, kind, code_address, false);
}

void check_volatile_access(
    const void* address, std::size_t bytes, Access kind, const void* code_address
) {
    check(address, bytes, kind, code_address, true);
}

void note_memory_fence() {
    if (running_block != nullptr) blocks_communicate = true;
}

void report_bad_index(
    const std::string& index, const char* array_type, const void* code_address
) {
    KernelPause pause(running_block);
    if (pause.block() == nullptr) return;
    fail_in_thread(
        cudaErrorIllegalAddress,
        "out of bounds: index " + index + " of an array of type " + array_type +
            " at " + source_line(location_of(code_address)),
        pause.block()->running_thread()
    );
}

void report_misalignment(
    const void* address, std::size_t alignment, const char* type, const char* action,
    const void* code_address
) {
    KernelPause pause(running_block);
    BlockState* block = pause.block();
    if (block == nullptr) return;
    fail_in_thread(
        cudaErrorMisalignedAddress,
        std::string("misaligned access: ") + action + " " + type + " at " +
            block->name_of(reinterpret_cast<std::uintptr_t>(address)) +
            ", whose address is not a multiple of " + std::to_string(alignment) +
            ", at " + source_line(location_of(code_address)),
        block->running_thread()
    );
}

/// The sentence that emulator_unwritten_outputs returns; empty if nothing is missing.
std::string describe_unwritten_outputs() {
    std::string what;
    {
        std::lock_guard lock(memory.mutex);
        what = memory.unwritten();
    }
    if (what.empty()) return what;
    std::lock_guard lock(last_kernel_mutex);
    if (last_kernel == nullptr) return what;
    Location kernel = location_of(static_cast<const char*>(last_kernel) + 1);
    return what + " by the kernel at " + source_line(kernel);
}

}  // namespace checking
}  // namespace emulator

const char* emulator_unwritten_outputs(void) {
    thread_local std::string message;
    message = emulator::checking::describe_unwritten_outputs();
    return message.empty() ? nullptr : message.c_str();
}

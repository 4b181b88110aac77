// The blocks of a cluster take turns: each runs until none of its threads can go on.

#include "cluster.h"

#include <algorithm>

#include "../device/cluster.h"
#include "../device/mbarrier.h"
#include "../observer.h"
#include "block.h"
#include "launch.h"
#include "text.h"

namespace emulator {

Cluster::Cluster(Launch& launch, const std::vector<std::unique_ptr<Block>>& blocks)
    : launch_(launch), blocks_(blocks) {
    for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
        blocks[rank]->enter(launch, *this, static_cast<unsigned>(rank));
        order_.push_back(blocks[rank].get());
    }
}

bool Cluster::run(std::uint64_t number, uint3 first) {
    arrived_ = 0;
    dim3 size = launch_.request.cluster_size;
    random_ = Random(launch_.options.seed + number);
    for (unsigned rank = 0; rank < blocks_.size(); ++rank) {
        uint3 index = {
            first.x + rank % size.x, first.y + rank / size.x % size.y,
            first.z + rank / (size.x * size.y)
        };
        blocks_[rank]->begin(number * blocks_.size() + rank, index);
    }
    bool has_succeeded = is_alone() ? go_on(*blocks_[0]) : run_together();
    for (const auto& block : blocks_) {
        if (!has_succeeded) block->abandon();
        block->end_run();
    }
    return has_succeeded;
}

bool Cluster::run_together() {
    switch (launch_.options.order) {
        case Order::forward:
        case Order::random:
            break;
        case Order::reverse:
            std::reverse(order_.begin(), order_.end());
            break;
    }
    bool has_succeeded = true;
    for (bool is_running = true; is_running && has_succeeded;) {
        if (launch_.options.order == Order::random) {
            for (std::size_t i = order_.size() - 1; i > 0; --i) {
                std::swap(order_[i], order_[random_.below(i + 1)]);
            }
        }
        bool has_moved = false, only_polls = false;
        is_running = false;
        for (Block* block : order_) {
            if (block->has_ended()) continue;
            if (block->can_go_on()) {
                has_succeeded = go_on(*block);
                if (!has_succeeded) break;
                has_moved |= !block->is_polling();
                only_polls |= block->is_polling();
            }
            is_running |= !block->has_ended();
        }
        if (!is_running || !has_succeeded || has_moved) continue;
        has_succeeded = finish_something_or_fail(only_polls);
    }
    if (launch_.options.order == Order::reverse) {
        std::reverse(order_.begin(), order_.end());
    }
    return has_succeeded;
}

bool Cluster::go_on(Block& block) {
    if (observer != nullptr) observer->block_goes_on(block.rank());
    if (block.go_on()) return true;
    error_ = block.error();
    message_ = block.message();
    return false;
}

/// Called when no thread of any block can go on, other than by polling.
bool Cluster::finish_something_or_fail(bool only_polls) {
    for (Block* block : order_) {
        if (observer != nullptr) observer->block_goes_on(block->rank());
        try {
            if (block->finish_something() || block->release_active_masks()) return true;
        } catch (const BlockFailure&) {
            error_ = block->error();
            message_ = block->message();
            return false;
        }
    }
    if (!only_polls) fail_for_deadlock();
    return only_polls;
}

void Cluster::fail_for_deadlock() {
    error_ = cudaErrorLaunchFailure;
    message_ = "deadlock: no thread of the cluster can go on";
    for (const auto& block : blocks_) message_ += "\n  in " + block->account();
}

// ---- The barrier --------------------------------------------------------------------

void Cluster::count_arrival() {
    ++arrived_;
    end_barrier_if_complete();
}

void Cluster::end_barrier_if_complete() {
    if (arrived_ == 0) return;
    unsigned alive = 0;
    for (const auto& block : blocks_) alive += block->alive();
    if (arrived_ < alive) return;
    arrived_ = 0;
    if (observer != nullptr) observer->cluster_barrier_completes();
    for (Block* block : order_) block->leave_cluster_barrier();
}

// ---- Operations of a block's threads ------------------------------------------------

void Block::meet_cluster(const char* operation, Site site) {
    RuntimeScope scope(*this);
    Thread& thread = begin_operation(State::in_cluster_barrier, operation, site);
    if (thread.has_arrived) fail_for_unawaited_cluster(operation, site);
    cluster_->count_arrival();
    switch_to_next();
}

/// Only notes the arrival, which counts when the thread waits.
void Block::arrive_at_cluster(Site site) {
    constexpr const char* OPERATION = "cluster_arrive";
    RuntimeScope scope(*this);
    Thread& thread = begin_operation(State::running, OPERATION, site);
    if (thread.has_arrived) fail_for_unawaited_cluster(OPERATION, site);
    thread.has_arrived = true;
}

void Block::wait_for_cluster(Site site) {
    constexpr const char* OPERATION = "cluster_wait";
    {
        RuntimeScope scope(*this);
        Thread& thread = begin_operation(State::running, OPERATION, site);
        if (!thread.has_arrived) {
            fail_at(
                cudaErrorLaunchFailure,
                text("%s without a cluster_arrive before it", OPERATION), site
            );
        }
        thread.has_arrived = false;
    }
    meet_cluster(OPERATION, site);
}

void Block::fail_for_unawaited_cluster(const char* operation, Site site) {
    fail_at(
        cudaErrorLaunchFailure,
        text("%s after a cluster_arrive that still needs its cluster_wait", operation),
        site
    );
}

void Block::leave_cluster_barrier() {
    note_progress();
    wake(0, thread_count_, [](const Thread& thread) {
        return thread.state == State::in_cluster_barrier;
    });
}

/// The running block of this rank in the cluster; the launch fails if there is none.
Block& Block::peer(int rank, const char* operation, Site site) {
    if (rank < 0 || static_cast<std::size_t>(rank) >= cluster_->size()) {
        fail_at(
            cudaErrorLaunchFailure,
            text(
                "%s for block %d of a cluster of %zu blocks", operation, rank,
                cluster_->size()
            ),
            site
        );
    }
    Block& result = cluster_->block(static_cast<std::size_t>(rank));
    if (result.has_ended()) {
        fail_at(
            cudaErrorLaunchFailure,
            text(
                "%s for block %d of the cluster, whose threads have all returned,",
                operation, rank
            ),
            site
        );
    }
    return result;
}

/// The place in another block's shared memory with the offset of one in this block's.
void* Block::map_shared(
    const void* shared, int rank, const char* operation, Site site
) {
    auto offset = static_cast<std::size_t>(
        static_cast<const unsigned char*>(shared) - shared_memory()
    );
    if (offset >= launch_->request.shared_bytes) {
        fail_at(
            cudaErrorLaunchFailure,
            text(
                "%s of %s: in a cluster the emulator maps dynamic shared memory only,",
                operation, place_of(shared).c_str()
            ),
            site
        );
    }
    return peer(rank, operation, site).shared_memory() + offset;
}

/// The mbarrier at the same offset in another block. The checker counts an arrival
/// there: what this thread has done happens before the end of its phase.
Mbarrier& Block::tell_remote_mbarrier(
    std::uint64_t* word, int rank, const char* operation, Site site
) {
    Thread& thread = begin_operation(State::running, operation, site);
    auto* remote = static_cast<std::uint64_t*>(map_shared(word, rank, operation, site));
    note_access(remote, sizeof(*remote), Access::read, site);
    Mbarrier& barrier =
        mbarrier_of(peer(rank, operation, site), remote, operation, site);
    if (observer != nullptr) {
        observer->mbarrier_is_arrived_at(barrier.id, thread.number);
    }
    return barrier;
}

void Block::arrive_at_remote_mbarrier(std::uint64_t* word, int rank, Site site) {
    constexpr const char* OPERATION = "mbarrier_arrive_remote";
    RuntimeScope scope(*this);
    Mbarrier& barrier = tell_remote_mbarrier(word, rank, OPERATION, site);
    count_arrival(peer(rank, OPERATION, site), barrier, OPERATION, site);
}

void Block::complete_remote_bytes(std::uint64_t* word, int bytes, int rank, Site site) {
    constexpr const char* OPERATION = "store_remote";
    RuntimeScope scope(*this);
    Mbarrier& barrier = tell_remote_mbarrier(word, rank, OPERATION, site);
    complete_bytes(peer(rank, OPERATION, site), barrier, bytes);
}

// ---- Called by kernels --------------------------------------------------------------

int cluster_rank() { return static_cast<int>(this_block().rank()); }

void meet_cluster(Site site) { this_block().meet_cluster("cluster_sync", site); }

void arrive_at_cluster(Site site) { this_block().arrive_at_cluster(site); }

void wait_for_cluster(Site site) { this_block().wait_for_cluster(site); }

void* map_shared(const void* shared, int block, Site site) {
    Block& own = this_block();
    RuntimeScope scope(own);
    return own.map_shared(shared, block, "map_shared", site);
}

void arrive_at_remote_mbarrier(std::uint64_t* barrier, int block, Site site) {
    this_block().arrive_at_remote_mbarrier(barrier, block, site);
}

void complete_remote_bytes(std::uint64_t* barrier, int bytes, int block, Site site) {
    this_block().complete_remote_bytes(barrier, bytes, block, site);
}

}  // namespace emulator

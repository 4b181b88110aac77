#include "block_state.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "../device/language.h"
#include "../host/api.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

// ---- Time ---------------------------------------------------------------------------

void BlockState::begin(
    const BlockFacts& facts, const std::vector<BlockState*>& cluster
) {
    in_kernel_ = facts.in_kernel;
    rank_ = facts.rank;
    cluster_ = &cluster;
    seen_epochs_.fill(0);
    number_ = static_cast<std::uint32_t>(facts.number);
    size_ = facts.size;
    shared_begin_ = reinterpret_cast<std::uintptr_t>(facts.shared_memory);
    shared_bytes_ = facts.shared_bytes;
    ++generation_;
    epoch_ = 1;
    premature_read_.reset();
    unsigned threads = thread_count();
    std::fill_n(clocks_.begin(), threads, 1);
    for (unsigned thread = 0; thread < threads; ++thread) seen_[thread].fill(0);
    follows_each_thread_ = false;
    if (dynamic_shadow_ == nullptr || dynamic_shadow_->bytes() < shared_bytes_) {
        dynamic_shadow_ = std::make_unique<Shadow>(shared_bytes_);
    }
}

void BlockState::complete_barrier() {
    ++epoch_;
    if (follows_each_thread_) {
        std::vector<unsigned> all(thread_count());
        std::iota(all.begin(), all.end(), 0);
        threads_meet(all.data(), all.size());
    }
    if (!premature_read_) return;
    fail(cudaErrorLaunchFailure, premature_read_->event, premature_read_->what);
}

void BlockState::complete_warp_barrier(unsigned warp, unsigned lanes) {
    std::array<std::uint32_t, WARP_SIZE> joint{};
    auto for_each_lane = [&](auto visit) {
        for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
            auto lane = static_cast<unsigned>(__builtin_ctz(rest));
            visit(lane, warp * WARP_SIZE + lane);
        }
    };
    for_each_lane([&](unsigned lane, unsigned thread) {
        for (unsigned other = 0; other < WARP_SIZE; ++other) {
            joint[other] = std::max(joint[other], seen_[thread][other]);
        }
        joint[lane] = std::max(joint[lane], clocks_[thread]);
    });
    for_each_lane([&](unsigned, unsigned thread) {
        seen_[thread] = joint;
        if (!follows_each_thread_) ++clocks_[thread];
    });
    if (!follows_each_thread_) return;
    std::array<unsigned, WARP_SIZE> threads;
    std::size_t count = 0;
    for_each_lane([&](unsigned, unsigned thread) { threads[count++] = thread; });
    threads_meet(threads.data(), count);
}

// ---- Time, where each thread is followed --------------------------------------------

void BlockState::follow_each_thread() {
    if (follows_each_thread_) return;
    for (BlockState* block : *cluster_) block->follow_own_threads();
}

void BlockState::follow_own_threads() {
    auto blocks = static_cast<unsigned>(cluster_->size());
    follows_each_thread_ = true;
    knowledge_.resize(std::max<std::size_t>(knowledge_.size(), thread_count()));
    for (unsigned thread = 0; thread < thread_count(); ++thread) {
        knowledge_[thread].begin(blocks, thread_count());
        unsigned first = thread / WARP_SIZE * WARP_SIZE;
        for (unsigned lane = 0; lane < WARP_SIZE; ++lane) {
            if (first + lane >= thread_count()) break;
            knowledge_[thread].see(rank_, first + lane, seen_[thread][lane]);
        }
    }
    mbarriers_.clear();
    agent_times_.fill(0);
}

void BlockState::threads_meet(const unsigned* threads, std::size_t count) {
    follow_each_thread();
    Knowledge joint = knowledge_[threads[0]];
    for (std::size_t i = 0; i < count; ++i) {
        joint.learn_from(knowledge_[threads[i]]);
        joint.see(rank_, threads[i], clocks_[threads[i]]++);
    }
    for (std::size_t i = 0; i < count; ++i) knowledge_[threads[i]] = joint;
}

void BlockState::complete_cluster_barrier() {
    for (BlockState* block : *cluster_) ++block->epoch_;
    for (BlockState* block : *cluster_) {
        for (const BlockState* other : *cluster_) {
            block->seen_epochs_[other->rank_] = other->epoch_;
        }
    }
    if (!follows_each_thread_) return;
    Knowledge joint = knowledge_[0];
    for (BlockState* block : *cluster_) {
        for (unsigned thread = 0; thread < thread_count(); ++thread) {
            joint.learn_from(block->knowledge_[thread]);
            joint.see(block->rank_, thread, block->clocks_[thread]++);
        }
    }
    for (BlockState* block : *cluster_) {
        std::fill_n(block->knowledge_.begin(), thread_count(), joint);
    }
}

void BlockState::mbarrier_begins(MbarrierId mbarrier) {
    follow_each_thread();
    if (mbarrier.number >= mbarriers_.size()) mbarriers_.resize(mbarrier.number + 1);
    auto blocks = static_cast<unsigned>(cluster_->size());
    Mbarrier& own = mbarriers_[mbarrier.number];
    own.arrived.begin(blocks, thread_count());
    own.complete.begin(blocks, thread_count());
}

BlockState::Mbarrier& BlockState::state_of(MbarrierId mbarrier) {
    return (*cluster_)[mbarrier.rank]->mbarriers_[mbarrier.number];
}

void BlockState::mbarrier_is_arrived_at(MbarrierId mbarrier, unsigned thread) {
    Knowledge& own = knowledge_[thread];
    own.see(rank_, thread, clocks_[thread]++);
    state_of(mbarrier).arrived.learn_from(own);
}

void BlockState::mbarrier_phase_ends(MbarrierId mbarrier) {
    Mbarrier& state = state_of(mbarrier);
    state.complete.learn_from(state.arrived);
}

void BlockState::mbarrier_is_awaited(MbarrierId mbarrier, unsigned thread) {
    knowledge_[thread].learn_from(state_of(mbarrier).complete);
}

void BlockState::writes_are_published(unsigned thread) {
    follow_each_thread();
    knowledge_[thread].see(rank_, thread, clocks_[thread]++);
    knowledge_[thread].publish(epoch_);
}

std::uint32_t BlockState::agent_begins(
    unsigned agent, const unsigned* threads, std::size_t count
) {
    follow_each_thread();
    piece_.agent = agent;
    piece_.thread = running_thread();
    for (std::size_t i = 0; i < count; ++i) {
        Knowledge own = knowledge_[threads[i]];
        own.see(rank_, threads[i], clocks_[threads[i]]);
        if (i == 0) {
            piece_.knowledge = own;
        } else {
            piece_.knowledge.keep_what_is_known_to(own);
        }
    }
    return ++agent_times_[agent];
}

void BlockState::mbarrier_hears_of(
    MbarrierId mbarrier, unsigned rank, unsigned agent, std::uint32_t time
) {
    state_of(mbarrier).arrived.see(rank, event_number_of_agent(agent), time);
}

void BlockState::agent_is_awaited(unsigned agent, std::uint32_t time, unsigned thread) {
    knowledge_[thread].see(rank_, event_number_of_agent(agent), time);
}

// ---- What is ordered ----------------------------------------------------------------

unsigned BlockState::running_thread() const {
    uint3 index = this_thread().thread_index;
    return index.x + size_.x * (index.y + size_.y * index.z);
}

Event BlockState::event_of_running_thread(Access kind, Location location) const {
    unsigned thread = running_thread();
    return {
        .location = location,
        .block = number_,
        .epoch = epoch_,
        .clock = clocks_[thread],
        .thread = static_cast<std::uint16_t>(thread),
        .is_atomic = kind == Access::atomic,
    };
}

bool BlockState::is_ordered(const Event& earlier, const Event& now) const {
    if (earlier.epoch == 0) return true;
    const BlockState* other = of_cluster(earlier.block);
    if (other == nullptr) return blocks_communicate;
    bool is_own = other == this;
    if (!earlier.is_by_agent()) {
        if (is_own && earlier.thread == now.thread) return true;
        if (earlier.epoch < (is_own ? now.epoch : seen_epochs_[other->rank_])) {
            return true;
        }
    }
    if (follows_each_thread_) {
        const Knowledge& knowledge =
            now.is_by_agent() ? piece_.knowledge : knowledge_[now.thread];
        return knowledge.has_seen(other->rank_, earlier.thread, earlier.clock);
    }
    if (!is_own) return false;
    return earlier.warp() == now.warp() &&
           seen_[now.thread][earlier.thread % WARP_SIZE] >= earlier.clock;
}

/// The block of the cluster with this number in the grid; none if it is not one of them.
const BlockState* BlockState::of_cluster(std::uint32_t block) const {
    if (block == number_) return this;
    for (const BlockState* other : *cluster_) {
        if (other->number_ == block) return other;
    }
    return nullptr;
}

/// The block of the cluster in whose dynamic shared memory an address lies.
BlockState* BlockState::owner_of(std::uintptr_t shared_address) {
    for (BlockState* block : *cluster_) {
        if (shared_address - block->shared_begin_ < block->shared_bytes_) return block;
    }
    return nullptr;
}

/// Whether an asynchronous access may miss what a thread has written.
bool BlockState::is_unpublished(const Event& write, Access kind) const {
    if (kind != Access::asynchronous_read || write.is_by_agent()) return false;
    const BlockState* writer = of_cluster(write.block);
    if (write.epoch == 0 || writer == nullptr) return false;
    if (writer == this && write.epoch < piece_.knowledge.published_epoch())
        return false;
    return !piece_.knowledge.knows_as_published(
        writer->rank_, write.thread, write.clock
    );
}

// ---- Accesses -----------------------------------------------------------------------

namespace {

bool only_reads(Access kind) {
    return kind == Access::read || kind == Access::asynchronous_read;
}

}  // namespace

void BlockState::agent_accesses(
    std::uintptr_t address, std::size_t bytes, Access kind, Location location
) {
    Event event{
        .location = location,
        .block = number_,
        .epoch = epoch_,
        .clock = agent_times_[piece_.agent],
        .thread = static_cast<std::uint16_t>(event_number_of_agent(piece_.agent)),
        .is_atomic = false,
    };
    Attempt access{address, bytes, kind, event};
    BlockState& owner = *owner_of(address);
    std::size_t offset = address - owner.shared_begin_;
    access_shared(owner, *owner.dynamic_shadow_, offset, access, nullptr);
}

void BlockState::agent_has_written(std::uintptr_t address, std::size_t bytes) {
    BlockState& owner = *owner_of(address);
    owner.dynamic_shadow_->visit(
        address - owner.shared_begin_, bytes, owner.generation_,
        [](Cell& cell, unsigned, std::size_t) { return cell.is_in_flight = false; }
    );
}

void BlockState::access(
    std::uintptr_t address, std::size_t bytes, Access kind, Location location,
    bool is_volatile
) {
    if (bytes == 0) return;
    Attempt access{address, bytes, kind, event_of_running_thread(kind, location)};
    if (BlockState* owner = owner_of(address)) {
        std::size_t offset = address - owner->shared_begin_;
        if (offset + bytes > owner->shared_bytes_) fail_for_bounds(access);
        access_shared(*owner, *owner->dynamic_shadow_, offset, access, nullptr);
        return;
    }
    if (address - thread_local_base_ < static_shadow_.bytes()) {
        std::size_t offset = address - thread_local_base_;
        const SharedVariable* variable = variable_at(offset);
        if (variable != nullptr && variable->is_guard) return;
        if (variable == nullptr) {
            // The emulator's own: blockDim and gridDim, which a kernel may read.
            bool is_built_in =
                address - reinterpret_cast<std::uintptr_t>(&blockDim) < sizeof(dim3) ||
                address - reinterpret_cast<std::uintptr_t>(&gridDim) < sizeof(dim3);
            if (is_built_in && kind == Access::read) return;
            fail_for_bounds(access);
        }
        if (offset + bytes > variable->offset + variable->bytes)
            fail_for_bounds(access);
        if (is_in_cluster()) fail_for_static_variable(access, variable->name);
        access_shared(*this, static_shadow_, offset, access, &variable->name);
        return;
    }
    std::unique_lock lock(memory.mutex);
    if (Region* region = memory.find(address)) {
        if (is_volatile || kind == Access::atomic) {
            blocks_communicate = true;
            access.event.is_atomic = true;
        }
        access_region(*region, access, lock);
        return;
    }
    const Module& module = Module::own();
    bool is_write = !only_reads(kind);
    if (is_write ? module.may_write(address) : module.may_read(address)) return;
    lock.unlock();
    fail_for_bounds(access);
}

void BlockState::access_shared(
    BlockState& owner, Shadow& shadow, std::size_t offset, const Attempt& access,
    const std::string* name
) {
    auto place = [&](std::size_t byte) {
        if (name == nullptr) {
            std::string result =
                "byte " + std::to_string(byte) + " of dynamic shared memory";
            if (&owner == this) return result;
            return result + " of block " + std::to_string(owner.number_);
        }
        std::size_t start = variable_at(offset)->offset;
        return "byte " + std::to_string(byte - start) + " of '" + *name + "'";
    };
    if (auto finding = check_order(shadow, offset, access, owner.generation_)) {
        fail_for_order(*finding, access, place(finding->offset));
    }
    bool reads = only_reads(access.kind) || access.kind == Access::atomic;
    std::size_t unwritten = 0;
    bool is_uninitialised = shadow.visit(
        offset, access.bytes, owner.generation_,
        [&](Cell& cell, unsigned mask, std::size_t cell_offset) {
            if (!reads) {
                cell.written |= static_cast<std::uint8_t>(mask);
                return false;
            }
            unwritten = cell_offset;
            return (cell.written & mask) != mask;
        }
    );
    if (!is_uninitialised || premature_read_) return;
    std::string what = "uninitialised shared memory: " + verb(access) + " at " +
                       source_line(access.event.location) + ", but " +
                       place(unwritten) + " was never written";
    premature_read_ = {access.event, what};
}

void BlockState::access_region(
    Region& region, const Attempt& access, std::unique_lock<std::mutex>& lock
) {
    bool is_write = !only_reads(access.kind);
    if (access.address + access.bytes > region.end()) {
        lock.unlock();
        fail_for_bounds(access);
    }
    std::size_t offset = access.address - region.begin;
    if (region.use == EMULATOR_INPUT) {
        if (!is_write) return;
        lock.unlock();
        fail(
            cudaErrorLaunchFailure, access.event,
            "write to an input: " + verb(access) + " at byte " +
                std::to_string(offset) + " of tensor '" + region.name + "' at " +
                source_line(access.event.location)
        );
    }
    if (auto finding = check_order(*region.shadow, offset, access, launch_number)) {
        lock.unlock();
        std::string place = "byte " + std::to_string(finding->offset) + " of ";
        fail_for_order(*finding, access, place + "tensor '" + region.name + "'");
    }
    if (is_write && region.use == EMULATOR_OUTPUT) {
        auto first = region.written.begin() + static_cast<std::ptrdiff_t>(offset);
        std::fill_n(first, access.bytes, true);
    }
}

std::optional<BlockState::Finding> BlockState::check_order(
    Shadow& shadow, std::size_t offset, const Attempt& access, std::uint32_t generation
) {
    const Event& now = access.event;
    bool is_write = !only_reads(access.kind);
    std::optional<Finding> finding;
    shadow.visit(
        offset, access.bytes, generation,
        [&](Cell& cell, unsigned, std::size_t cell_offset) {
            bool both_atomic = cell.write.is_atomic && now.is_atomic;
            bool is_awaited = cell.is_in_flight && access.kind == Access::write &&
                              cell.write.location == now.location &&
                              cell.write.by_same_thread(now);
            if (cell.is_in_flight && !is_awaited) {
                finding = {cell.write, true, true, false, cell_offset};
            } else if (!both_atomic && !is_ordered(cell.write, now)) {
                finding = {cell.write, true, false, false, cell_offset};
            } else if (is_write && !is_ordered(cell.read, now)) {
                finding = {cell.read, false, false, false, cell_offset};
            } else if (is_write && !is_ordered(cell.other_read, now)) {
                finding = {cell.other_read, false, false, false, cell_offset};
            } else if (is_unpublished(cell.write, access.kind)) {
                finding = {cell.write, true, false, true, cell_offset};
            }
            if (finding) return true;
            if (is_write) {
                cell.write = now;
                cell.is_in_flight = access.kind == Access::asynchronous_write;
            } else {
                cell.note_read(now);
            }
            return false;
        }
    );
    return finding;
}

const SharedVariable* BlockState::variable_at(std::size_t offset) const {
    const auto& variables = Module::own().shared_variables();
    auto behind = std::upper_bound(
        variables.begin(), variables.end(), offset,
        [](std::size_t wanted, const SharedVariable& each) {
            return wanted < each.offset;
        }
    );
    if (behind == variables.begin()) return nullptr;
    const SharedVariable& variable = behind[-1];
    return offset < variable.offset + variable.bytes ? &variable : nullptr;
}

}  // namespace checking
}  // namespace emulator

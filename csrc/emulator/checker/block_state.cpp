#include "block_state.h"

#include <algorithm>
#include <utility>

#include "../device/language.h"
#include "../host/api.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

void BlockState::begin(
    const BlockFacts& facts, const std::vector<BlockState*>& cluster
) {
    in_kernel_ = facts.in_kernel;
    cluster_ = &cluster;
    number_ = static_cast<std::uint32_t>(facts.number);
    size_ = facts.size;
    shared_begin_ = reinterpret_cast<std::uintptr_t>(facts.shared_memory);
    shared_bytes_ = facts.shared_bytes;
    ++generation_;
    premature_read_.reset();
    if (dynamic_shadow_ == nullptr || dynamic_shadow_->bytes() < shared_bytes_) {
        dynamic_shadow_ = std::make_unique<Shadow>(shared_bytes_);
    }
}

void BlockState::complete_barrier() {
    order.complete_barrier();
    if (!premature_read_) return;
    fail(cudaErrorLaunchFailure, premature_read_->event, premature_read_->what);
}

unsigned BlockState::running_thread() const {
    uint3 index = this_thread().thread_index;
    return index.x + size_.x * (index.y + size_.y * index.z);
}

/// The block of the cluster in whose dynamic shared memory an address lies.
BlockState* BlockState::owner_of(std::uintptr_t shared_address) {
    for (BlockState* block : *cluster_) {
        if (shared_address - block->shared_begin_ < block->shared_bytes_) return block;
    }
    return nullptr;
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
    Attempt access{address, bytes, kind, order.event_of_agent(location)};
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
    Event event = order.event_of_thread(running_thread(), kind, location);
    Attempt access{address, bytes, kind, event};
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
            // blockDim and gridDim are the emulator's own variables that kernels may
            // read.
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
    if (auto race = find_race(shadow, offset, access, owner.generation_)) {
        fail_for_race(*race, access, place(race->offset));
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
    if (auto race = find_race(*region.shadow, offset, access, launch_number)) {
        lock.unlock();
        std::string place = "byte " + std::to_string(race->offset) + " of ";
        fail_for_race(*race, access, place + "tensor '" + region.name + "'");
    }
    if (is_write && region.use == EMULATOR_OUTPUT) {
        auto first = region.written.begin() + static_cast<std::ptrdiff_t>(offset);
        std::fill_n(first, access.bytes, true);
    }
}

std::optional<BlockState::Race> BlockState::find_race(
    Shadow& shadow, std::size_t offset, const Attempt& access, std::uint32_t generation
) {
    const Event& now = access.event;
    bool is_write = !only_reads(access.kind);
    std::optional<Race> race;
    shadow.visit(
        offset, access.bytes, generation,
        [&](Cell& cell, unsigned, std::size_t cell_offset) {
            bool both_atomic = cell.write.is_atomic && now.is_atomic;
            bool is_awaited = cell.is_in_flight && access.kind == Access::write &&
                              cell.write.location == now.location &&
                              cell.write.by_same_thread(now);
            if (cell.is_in_flight && !is_awaited) {
                race = {cell.write, true, true, false, cell_offset};
            } else if (!both_atomic && !order.happened_before(cell.write, now)) {
                race = {cell.write, true, false, false, cell_offset};
            } else if (is_write && !order.happened_before(cell.read, now)) {
                race = {cell.read, false, false, false, cell_offset};
            } else if (is_write && !order.happened_before(cell.other_read, now)) {
                race = {cell.other_read, false, false, false, cell_offset};
            } else if (order.is_unpublished(cell.write, access.kind)) {
                race = {cell.write, true, false, true, cell_offset};
            }
            if (race) return true;
            if (is_write) {
                cell.write = now;
                cell.is_in_flight = access.kind == Access::asynchronous_write;
            } else {
                cell.note_read(now);
            }
            return false;
        }
    );
    return race;
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

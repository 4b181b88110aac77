#include "block_state.h"

#include <algorithm>
#include <utility>

#include "../device/language.h"
#include "../host/api.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

// ---- Time ---------------------------------------------------------------------------

void BlockState::begin(const BlockFacts& facts) {
    in_kernel_ = facts.in_kernel;
    number_ = static_cast<std::uint32_t>(facts.number);
    size_ = facts.size;
    shared_begin_ = reinterpret_cast<std::uintptr_t>(facts.shared_memory);
    shared_bytes_ = facts.shared_bytes;
    ++generation_;
    epoch_ = 1;
    premature_read_.reset();
    unsigned threads = size_.x * size_.y * size_.z;
    std::fill_n(clocks_.begin(), threads, 1);
    for (unsigned thread = 0; thread < threads; ++thread) seen_[thread].fill(0);
    if (dynamic_shadow_ == nullptr || dynamic_shadow_->bytes() < shared_bytes_) {
        dynamic_shadow_ = std::make_unique<Shadow>(shared_bytes_);
    }
}

void BlockState::complete_barrier() {
    ++epoch_;
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
        ++clocks_[thread];
    });
}

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
    if (earlier.block != now.block) return blocks_communicate;
    if (earlier.thread == now.thread || earlier.epoch < now.epoch) return true;
    return earlier.warp() == now.warp() &&
           seen_[now.thread][earlier.thread % WARP_SIZE] >= earlier.clock;
}

// ---- Accesses -----------------------------------------------------------------------

void BlockState::access(
    std::uintptr_t address,
    std::size_t bytes,
    Access kind,
    Location location,
    bool is_volatile
) {
    if (bytes == 0) return;
    Attempt access{address, bytes, kind, event_of_running_thread(kind, location)};
    if (address - shared_begin_ < shared_bytes_) {
        if (address + bytes > shared_begin_ + shared_bytes_) fail_for_bounds(access);
        access_shared(*dynamic_shadow_, address - shared_begin_, access, nullptr);
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
        access_shared(static_shadow_, offset, access, &variable->name);
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
    bool is_write = kind != Access::read;
    if (is_write ? module.may_write(address) : module.may_read(address)) return;
    lock.unlock();
    fail_for_bounds(access);
}

void BlockState::access_shared(
    Shadow& shadow, std::size_t offset, const Attempt& access, const std::string* name
) {
    auto place = [&](std::size_t byte) {
        if (name == nullptr) {
            return "byte " + std::to_string(byte) + " of dynamic shared memory";
        }
        std::size_t start = variable_at(offset)->offset;
        return "byte " + std::to_string(byte - start) + " of '" + *name + "'";
    };
    if (auto finding = check_order(shadow, offset, access, generation_)) {
        fail_for_order(*finding, access, place(finding->offset));
    }
    bool reads = access.kind == Access::read || access.kind == Access::atomic;
    std::size_t unwritten = 0;
    bool is_uninitialised = shadow.visit(
        offset,
        access.bytes,
        generation_,
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
    bool is_write = access.kind != Access::read;
    if (access.address + access.bytes > region.end()) {
        lock.unlock();
        fail_for_bounds(access);
    }
    std::size_t offset = access.address - region.begin;
    if (!region.is_output) {
        if (!is_write) return;
        lock.unlock();
        fail(
            cudaErrorLaunchFailure,
            access.event,
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
    if (is_write && region.is_tensor) {
        auto first = region.written.begin() + static_cast<std::ptrdiff_t>(offset);
        std::fill_n(first, access.bytes, true);
    }
}

std::optional<BlockState::Finding> BlockState::check_order(
    Shadow& shadow, std::size_t offset, const Attempt& access, std::uint32_t generation
) {
    const Event& now = access.event;
    bool is_write = access.kind != Access::read;
    std::optional<Finding> finding;
    shadow.visit(
        offset,
        access.bytes,
        generation,
        [&](Cell& cell, unsigned, std::size_t cell_offset) {
            bool both_atomic = cell.write.is_atomic && now.is_atomic;
            bool is_awaited = cell.is_in_flight && access.kind == Access::write &&
                              cell.write.location == now.location &&
                              cell.write.by_same_thread(now);
            if (cell.is_in_flight && !is_awaited) {
                finding = {cell.write, true, true, cell_offset};
            } else if (!both_atomic && !is_ordered(cell.write, now)) {
                finding = {cell.write, true, false, cell_offset};
            } else if (is_write && !is_ordered(cell.read, now)) {
                finding = {cell.read, false, false, cell_offset};
            } else if (is_write && !is_ordered(cell.other_read, now)) {
                finding = {cell.other_read, false, false, cell_offset};
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
        variables.begin(),
        variables.end(),
        offset,
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

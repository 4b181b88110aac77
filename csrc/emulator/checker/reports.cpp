// The checker's messages.

#include <cstdio>
#include <mutex>
#include <string>

#include "../host/api.h"
#include "block_state.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

namespace {

std::string bytes_text(std::size_t bytes) {
    return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

std::string address_text(std::uintptr_t address) {
    char text[32];
    std::snprintf(text, sizeof(text), "address 0x%zx", std::size_t{address});
    return text;
}

}  // namespace

void BlockState::fail(
    cudaError error, const Event& event, const std::string& what
) const {
    fail_in_thread(error, what, event.is_by_agent() ? order.beginner() : event.thread);
}

std::string BlockState::verb(const Attempt& access) {
    switch (access.kind) {
        case Access::read:
            return "reads " + bytes_text(access.bytes);
        case Access::write:
            return "writes " + bytes_text(access.bytes);
        case Access::atomic:
            return "updates " + bytes_text(access.bytes);
        case Access::asynchronous_read:
            return "starts to read " + bytes_text(access.bytes);
        case Access::asynchronous_write:
            return "copies " + bytes_text(access.bytes);
    }
    return "";
}

/// The thread or agent of an event, with its block if the other event's is another.
std::string BlockState::actor(const Event& event, const Event& other) const {
    if (event.is_by_agent()) {
        unsigned agent = event.thread - MAX_THREADS;
        if (agent < store_agent(0)) return "a tensor load";
        return agent < multiply_agent(0) ? "a tensor store" : "a multiplication";
    }
    std::string thread = "thread " + std::to_string(event.thread);
    if (event.block == other.block) return thread;
    return thread + " of block " + std::to_string(event.block);
}

std::string BlockState::missing_order(const Event& earlier, const Event& now) const {
    if (earlier.block != now.block && !order.is_of_cluster(earlier.block)) {
        return "no barrier orders the blocks of a launch";
    }
    if (earlier.is_by_agent()) {
        unsigned agent = earlier.thread - MAX_THREADS;
        std::string wait = "mbarrier_wait()";
        if (agent >= store_agent(0)) wait = "tma_store_wait_group_read()";
        if (agent >= multiply_agent(0)) wait = "wgmma_wait_group()";
        return "no " + wait +
               " between them, in this thread or in one that it synchronised with";
    }
    if (earlier.block != now.block) return "no barrier of the cluster between them";
    if (order.follows_each_thread()) return "no barrier between them";
    if (earlier.warp() == now.warp()) {
        return "no __syncthreads() or __syncwarp() between them";
    }
    return "no __syncthreads() between them";
}

void BlockState::fail_for_race(
    const Race& race, const Attempt& access, const std::string& place
) const {
    const Event& now = access.event;
    const Event& earlier = race.earlier;
    Event beginner = now;  // the thread that began the agent's work
    if (now.is_by_agent()) {
        beginner.thread = static_cast<std::uint16_t>(order.beginner());
    }
    std::string name = actor(earlier, now);
    std::string first = source_line(earlier.location);
    std::string second = actor(beginner, earlier) + " " + verb(access) + " there at " +
                         source_line(now.location);
    if (race.is_in_flight) {
        fail(
            cudaErrorLaunchFailure, now,
            "asynchronous copy not awaited: " + name + " starts to copy to " + place +
                " at " + first + ", " + second + ": no wait for the copy between them"
        );
    }
    if (race.is_unpublished) {
        fail(
            cudaErrorLaunchFailure, now,
            "missing fence: " + name + " writes " + place + " at " + first + ", " +
                second + ": no fence_async_proxy() between them"
        );
    }
    fail(
        cudaErrorLaunchFailure, now,
        "race: " + name + (race.earlier_wrote ? " writes " : " reads ") + place +
            " at " + first + ", " + second + ": " + missing_order(earlier, now)
    );
}

void BlockState::fail_for_bounds(const Attempt& access) const {
    fail(
        cudaErrorIllegalAddress, access.event,
        "out of bounds: " + describe_stray_access(access) + " at " +
            source_line(access.event.location)
    );
}

void BlockState::fail_for_static_variable(
    const Attempt& access, const std::string& name
) const {
    fail(
        cudaErrorNotSupported, access.event,
        "static shared memory in a cluster: " + verb(access) + " of '" + name +
            "' at " + source_line(access.event.location) +
            "; the emulator keeps one copy of it for all blocks of the cluster: use "
            "dynamic shared memory"
    );
}

std::string BlockState::describe_stray_access(const Attempt& access) const {
    constexpr std::size_t SHARED_BUFFER_BYTES = 228 * 1024;
    constexpr std::size_t FAR = 1 << 20;
    std::uintptr_t address = access.address;
    auto relative_to = [&](std::uintptr_t begin, std::size_t size, std::string name) {
        std::string where =
            address < begin
                ? bytes_text(begin - address) + " before the start of "
                : "up to " + bytes_text(address + access.bytes - begin - size) +
                      " past the end of ";
        return verb(access) + ", " + where + name + " (" + bytes_text(size) + ")";
    };
    if (address - shared_begin_ < SHARED_BUFFER_BYTES) {
        return relative_to(shared_begin_, shared_bytes_, "dynamic shared memory");
    }
    if (address - thread_local_base_ < static_shadow_.bytes()) {
        const SharedVariable* nearest = nullptr;
        for (const SharedVariable& each : Module::own().shared_variables()) {
            bool begins_before = thread_local_base_ + each.offset <= address;
            if (begins_before || nearest == nullptr) nearest = &each;
        }
        if (nearest == nullptr) return verb(access) + " of the emulator's own memory";
        return relative_to(
            thread_local_base_ + nearest->offset, nearest->bytes,
            "the shared array '" + nearest->name + "'"
        );
    }
    std::lock_guard lock(memory.mutex);
    auto [region, is_gap] = memory.nearest(address);
    if (const Region* inside = memory.find(address)) {
        region = inside;
        is_gap = false;
    }
    if (region == nullptr || region->distance_to(address) > FAR) {
        return verb(access) + " at " + address_text(address) +
               ", which belongs to no tensor of the launch";
    }
    std::string name = region->is_tensor ? "tensor '" : "'";
    name += region->name + "'";
    if (is_gap) return verb(access) + " that lie between the elements of " + name;
    return relative_to(region->begin, region->bytes, name);
}

std::string BlockState::name_of(std::uintptr_t address) const {
    if (address - shared_begin_ < shared_bytes_) {
        return "byte " + std::to_string(address - shared_begin_) +
               " of dynamic shared memory";
    }
    if (address - thread_local_base_ < static_shadow_.bytes()) {
        std::size_t offset = address - thread_local_base_;
        if (const SharedVariable* variable = variable_at(offset)) {
            return "byte " + std::to_string(offset - variable->offset) + " of '" +
                   variable->name + "'";
        }
    }
    std::lock_guard lock(memory.mutex);
    if (const Region* region = memory.find(address)) {
        return "byte " + std::to_string(address - region->begin) + " of tensor '" +
               region->name + "'";
    }
    return address_text(address);
}

}  // namespace checking
}  // namespace emulator

#include "memory.h"

#include <algorithm>
#include <utility>

#include "../emulator_checker.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

Memory memory;

namespace {

/// The first region that begins after an address.
template <typename Regions>
auto first_behind(Regions& regions, std::uintptr_t address) {
    return std::upper_bound(
        regions.begin(), regions.end(), address,
        [](std::uintptr_t wanted, const auto& region) { return wanted < region->begin; }
    );
}

}  // namespace

void Memory::add(Region region) {
    std::lock_guard lock(mutex);
    if (region.use != EMULATOR_INPUT) {
        region.shadow = std::make_unique<Shadow>(region.bytes);
    }
    if (region.use == EMULATOR_OUTPUT) region.written.resize(region.bytes);
    last_found_ = nullptr;
    auto place = first_behind(regions_, region.begin);
    regions_.insert(place, std::make_unique<Region>(std::move(region)));
}

void Memory::remove(std::uintptr_t begin) {
    std::lock_guard lock(mutex);
    last_found_ = nullptr;
    std::erase_if(regions_, [begin](const auto& region) {
        return region->begin == begin && !region->is_tensor;
    });
}

void Memory::clear_tensors() {
    std::lock_guard lock(mutex);
    last_found_ = nullptr;
    std::erase_if(regions_, [](const auto& region) { return region->is_tensor; });
}

void Memory::note_written(std::uintptr_t begin, std::size_t bytes) {
    std::lock_guard lock(mutex);
    for (const auto& region : regions_) {
        if (region->written.empty()) continue;
        std::uintptr_t first = std::max(begin, region->begin);
        std::uintptr_t end = std::min(begin + bytes, region->end());
        for (; first < end; ++first) region->written[first - region->begin] = true;
    }
}

Region* Memory::find(std::uintptr_t address) {
    auto contains = [address](const Region& region) {
        return address >= region.begin && address - region.begin < region.bytes;
    };
    if (last_found_ != nullptr && contains(*last_found_)) return last_found_;
    // Regions may overlap: a tensor and its view, or a tensor and its allocation.
    for (auto place = first_behind(regions_, address); place != regions_.begin();) {
        Region& region = **--place;
        if (contains(region)) return last_found_ = &region;
    }
    return nullptr;
}

Neighbour Memory::nearest(std::uintptr_t address) const {
    auto behind = first_behind(regions_, address);
    const Region* after = behind == regions_.end() ? nullptr : behind->get();
    const Region* before = behind == regions_.begin() ? nullptr : behind[-1].get();
    if (before == nullptr || after == nullptr) {
        return {before == nullptr ? after : before, false};
    }
    if (before->is_tensor && after->is_tensor && before->name == after->name) {
        return {before, true};
    }
    bool first_is_nearer = address - before->end() < after->begin - address;
    return {first_is_nearer ? before : after, false};
}

std::string Memory::unwritten() const {
    for (const auto& region : regions_) {
        auto missing = std::find(region->written.begin(), region->written.end(), false);
        if (missing == region->written.end()) continue;
        // A tensor with gaps counts as a whole, its pieces in the order of their
        // addresses.
        std::size_t first = 0;
        std::size_t total = 0;
        std::size_t unwritten = 0;
        for (const auto& piece : regions_) {
            if (!piece->is_tensor || piece->name != region->name) continue;
            if (piece == region) {
                first =
                    total + static_cast<std::size_t>(missing - region->written.begin());
            }
            total += piece->bytes;
            unwritten += static_cast<std::size_t>(
                std::count(piece->written.begin(), piece->written.end(), false)
            );
        }
        return "output '" + region->name +
               "' is incomplete: " + std::to_string(unwritten) + " of its " +
               std::to_string(total) + " bytes were never written, the first at byte " +
               std::to_string(first);
    }
    return "";
}

}  // namespace checking
}  // namespace emulator

void emulator_register_tensor(
    const char* name, const void* address, size_t bytes, emulator_use use
) {
    emulator::checking::memory.add(
        {.name = name,
         .begin = reinterpret_cast<std::uintptr_t>(address),
         .bytes = bytes,
         .is_tensor = true,
         .use = use,
         .shadow = nullptr,
         .written = {}}
    );
}

void emulator_clear_tensors(void) { emulator::checking::memory.clear_tensors(); }

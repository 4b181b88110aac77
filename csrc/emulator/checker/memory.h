// The memory that a program has registered for its kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "emulator_checker.h"
#include "shadow.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

/// A tensor, a piece of one that has gaps, or what cudaMalloc has returned.
struct Region {
    std::string name;
    std::uintptr_t begin;
    std::size_t bytes;
    bool is_tensor;
    emulator_use use;
    std::unique_ptr<Shadow> shadow;  // of what kernels may write to
    std::vector<bool> written;       // of an output, every byte

    std::uintptr_t end() const { return begin + bytes; }
    std::size_t distance_to(std::uintptr_t address) const {
        if (address < begin) return begin - address;
        return address < end() ? 0 : address - end();
    }
};

/// What is nearest to an address that lies in no region.
struct Neighbour {
    const Region* region;
    bool is_gap;  // between two pieces of one tensor
};

class Memory {
  public:
    void add(Region region);
    void remove(std::uintptr_t begin);
    void clear_tensors();

    // With the mutex held, which guards the shadows as well:
    Region* find(std::uintptr_t address);
    Neighbour nearest(std::uintptr_t address) const;
    /// What of the output tensors was never written: a sentence, or nothing.
    std::string unwritten() const;

    std::mutex mutex;

  private:
    std::vector<std::unique_ptr<Region>> regions_;  // by address
    Region* last_found_ = nullptr;
};

/// The one of this module.
extern Memory memory;

}  // namespace checking
}  // namespace emulator

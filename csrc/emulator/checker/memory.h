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

/// A tensor, a piece of a tensor with gaps, or an allocation of CUDA.
struct Region {
    std::string name;
    std::uintptr_t begin;
    std::size_t bytes;
    bool is_tensor;
    emulator_use use;
    std::unique_ptr<Shadow> shadow;  // none for an input
    std::vector<bool> written;       // by byte, of an output

    std::uintptr_t end() const { return begin + bytes; }
    std::size_t distance_to(std::uintptr_t address) const {
        if (address < begin) return begin - address;
        return address < end() ? 0 : address - end();
    }
};

/// The region nearest to an address that lies in none.
struct Neighbour {
    const Region* region;
    bool is_gap;  // between two pieces of one tensor
};

class Memory {
  public:
    void add(Region region);
    void remove(std::uintptr_t begin);
    void clear_tensors();
    /// These bytes of outputs count as written.
    void note_written(std::uintptr_t begin, std::size_t bytes);

    // Call these with the mutex held; it guards the shadows, too.
    Region* find(std::uintptr_t address);
    Neighbour nearest(std::uintptr_t address) const;
    /// A sentence on the bytes of an output that were never written; empty if there are
    /// none.
    std::string unwritten() const;

    std::mutex mutex;

  private:
    std::vector<std::unique_ptr<Region>> regions_;  // by address
    Region* last_found_ = nullptr;
};

extern Memory memory;

}  // namespace checking
}  // namespace emulator

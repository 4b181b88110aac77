// The tensor copies that the threads of one block have in flight: boxes of a tensor, on
// their way between global and shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "../device/tensor_copy.h"
#include "../runtime.h"
#include "mbarrier.h"
#include "tensor_map.h"

namespace [[gnu::visibility("hidden")]] emulator {

struct BoxCopy {
    TensorMap map;
    BoxPosition position;
    unsigned char* shared;
    Site site;
    std::uint32_t time;  // for the observer
};

/// A load into one block or, with multicast, into several blocks of a cluster.
struct BoxLoad {
    struct Target {
        Block* block;
        unsigned char* shared;
        Mbarrier* barrier;
    };

    BoxCopy copy;
    unsigned agent;  // for the observer
    std::vector<Target> targets;
};

struct BoxStores {
    std::vector<BoxCopy> copies;  // in the order in which the thread started them
    std::vector<std::size_t> group_ends;  // of each group, the copies up to its end
    std::size_t awaited = 0;              // copies that the thread waits for
};

struct TensorCopies {
    void begin() {
        loads.clear();
        stores.clear();
        waiting.clear();
    }

    const BoxLoad* load_into(const Block& block) const;

    std::vector<BoxLoad> loads;            // in the order in which they were started
    std::map<unsigned, BoxStores> stores;  // by thread
    std::vector<Thread*> waiting;          // for their stores
};

/// Copies the box to this place in shared memory.
void perform_load(const BoxCopy& copy, unsigned char* shared);
void perform_store(const BoxCopy& copy);

}  // namespace emulator

// Launches that are told and not made: what host code would launch, and how.
#pragma once

#include <vector>

#include "../runtime.h"

namespace emulator {

/// As long as it exists, launches of its thread are listed, and run nothing. A thread has
/// one at a time.
class Rehearsal {
  public:
    Rehearsal();
    ~Rehearsal();
    Rehearsal(const Rehearsal&) = delete;
    Rehearsal& operator=(const Rehearsal&) = delete;

    /// The sizes of the clusters of each launch, in order.
    std::vector<dim3> cluster_sizes;
};

}  // namespace emulator

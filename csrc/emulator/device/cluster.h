// Clusters: blocks that run together and access each other's shared memory.
#pragma once

#include "../runtime.h"

namespace emulator {

/// The block's number in its cluster.
int cluster_rank();

/// Waits until every thread of the cluster has arrived.
void meet_cluster(Site site);

/// The split barrier. Here the arrival only counts when the thread waits.
void arrive_at_cluster(Site site);
void wait_for_cluster(Site site);

/// The place with the same offset in the dynamic shared memory of another block.
void* map_shared(const void* shared, int block, Site site);

}  // namespace emulator

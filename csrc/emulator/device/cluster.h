// Clusters: blocks that run together and reach each other's shared memory.
#pragma once

#include "../runtime.h"

namespace emulator {

/// The block's number in its cluster.
int cluster_rank();

/// Waits until every thread of the cluster has arrived.
void meet_cluster(Site site);

/// The same in two halves. Here all of it happens in the second one.
void arrive_at_cluster(Site site);
void wait_for_cluster(Site site);

/// The same place in the dynamic shared memory of another block of the cluster.
void* map_shared(const void* shared, int block, Site site);

}  // namespace emulator

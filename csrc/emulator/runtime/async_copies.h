// The asynchronous copies that the threads of one block have started and not awaited.
#pragma once

#include <cstddef>
#include <vector>

#include "../runtime.h"

namespace [[gnu::visibility("hidden")]] emulator {

struct AsyncCopy {
    void* target;
    const void* source;
    std::size_t bytes;
    std::size_t source_bytes;  // the rest of the target becomes 0
    Site site;
};

/// The hardware performs a copy at some time between its start and the end of its
/// thread's wait for it; the emulator performs it at one end or the other. A kernel
/// cannot rely on a copy that no thread waits for: a late one is never performed.
class AsyncCopies {
  public:
    /// Prepares for a new block, and drops what the last one has left.
    void begin(bool late);

    void start(unsigned thread, const AsyncCopy& copy);
    void commit(unsigned thread);
    /// Finishes all groups but the newest ones.
    void finish_groups(unsigned thread, std::size_t unfinished);
    void finish_all(unsigned thread);

  private:
    /// In the order in which the thread started them.
    struct Queue {
        std::vector<AsyncCopy> copies;
        std::vector<std::size_t> group_ends;  // of each group, the copies up to its end
    };

    Queue& queue(unsigned thread);
    void finish(Queue& queue, std::size_t copies);

    bool late_ = true;
    std::vector<Queue> queues_;
};

}  // namespace emulator

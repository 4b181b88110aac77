// Asynchronous copies of threads (cp.async): their start, and when they are performed.

#include "async_copies.h"

#include <cstring>

#include "../device/async_copy.h"
#include "../observer.h"
#include "block.h"
#include "text.h"

namespace emulator {

namespace {

void perform(const AsyncCopy& copy) {
    auto* target = static_cast<unsigned char*>(copy.target);
    std::memcpy(target, copy.source, copy.source_bytes);
    std::memset(target + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
}

void note_accesses(const AsyncCopy& copy, Access write) {
    note_access(copy.target, copy.bytes, write, copy.site);
    if (copy.source_bytes == 0) return;
    note_access(copy.source, copy.source_bytes, Access::read, copy.site);
}

template <typename T>
void erase_front(std::vector<T>& values, std::size_t count) {
    values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace

void AsyncCopies::begin(bool late) {
    late_ = late;
    for (Queue& queue : queues_) {
        queue.copies.clear();
        queue.group_ends.clear();
    }
}

void AsyncCopies::start(unsigned thread, const AsyncCopy& copy) {
    note_accesses(copy, Access::asynchronous_write);
    if (!late_) perform(copy);
    queue(thread).copies.push_back(copy);
}

void AsyncCopies::commit(unsigned thread) {
    Queue& own = queue(thread);
    own.group_ends.push_back(own.copies.size());
}

void AsyncCopies::finish_groups(unsigned thread, std::size_t unfinished) {
    Queue& own = queue(thread);
    if (own.group_ends.size() <= unfinished) return;
    std::size_t groups = own.group_ends.size() - unfinished;
    std::size_t copies = own.group_ends[groups - 1];
    finish(own, copies);
    erase_front(own.group_ends, groups);
    for (std::size_t& end : own.group_ends) end -= copies;
}

void AsyncCopies::finish_all(unsigned thread) {
    Queue& own = queue(thread);
    finish(own, own.copies.size());
    own.group_ends.clear();
}

/// Finishes the first copies of a queue. Each may have been performed at any time
/// between its start and now, so the checker is told of its accesses at both ends.
void AsyncCopies::finish(Queue& queue, std::size_t copies) {
    for (std::size_t i = 0; i < copies; ++i) {
        note_accesses(queue.copies[i], Access::write);
        if (late_) perform(queue.copies[i]);
    }
    erase_front(queue.copies, copies);
}

AsyncCopies::Queue& AsyncCopies::queue(unsigned thread) {
    if (thread >= queues_.size()) queues_.resize(thread + 1);
    return queues_[thread];
}

// ---- What kernels call --------------------------------------------------------------

void start_async_copy(
    void* target, const void* source, std::size_t bytes, std::size_t source_bytes,
    const char* operation, Site site
) {
    Block& block = this_block();
    if ((bytes != 4 && bytes != 8 && bytes != 16) || source_bytes > bytes) {
        block.fail_at(
            cudaErrorLaunchFailure,
            text(
                "%s of %zu bytes, %zu of them from the source; expected 4, 8 or 16 "
                "bytes, and no more from the source,",
                operation, bytes, source_bytes
            ),
            site
        );
    }
    for (const void* address : {static_cast<const void*>(target), source}) {
        if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
            misaligned_access(operation, site, address, bytes);
        }
    }
    RuntimeScope scope(block);
    block.async_copies().start(
        this_thread().thread->number, {target, source, bytes, source_bytes, site}
    );
}

void commit_async_copies() {
    RuntimeScope scope(this_block());
    this_block().async_copies().commit(this_thread().thread->number);
}

void wait_for_async_groups(std::size_t unfinished) {
    RuntimeScope scope(this_block());
    this_block().async_copies().finish_groups(this_thread().thread->number, unfinished);
}

void wait_for_async_copies() {
    RuntimeScope scope(this_block());
    this_block().async_copies().finish_all(this_thread().thread->number);
}

}  // namespace emulator

// Shadow memory: the last accesses of every byte.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

#include "happens_before.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

/// The last accesses of a granule of memory, or of one of its bytes.
struct Cell {
    std::uint32_t generation;  // the block or launch that the rest is about
    std::uint8_t written;      // a bit for each byte
    bool is_split;             // the cells of the bytes count instead
    bool is_in_flight;         // an asynchronous copy may write to it at any moment
    Event write;
    // The last reads by two threads, of two warps if more than one has read: a write
    // that races with a read by another warp then races with one of these two.
    Event read;
    Event other_read;

    void note_read(const Event& event) {
        bool is_newest = read.interval == event.interval && read.block == event.block;
        if (is_newest && !read.by_same_thread(event)) {
            bool other_is_newest = other_read.interval == event.interval &&
                                   other_read.block == event.block;
            if (read.warp() != event.warp() || !other_is_newest ||
                other_read.warp() == event.warp()) {
                other_read = read;
            }
        } else if (read.is_by_agent() && !read.by_same_thread(event)) {
            other_read = read;  // a barrier does not order an agent's reads
        } else if (!is_newest && read.block != event.block) {
            other_read = read;
        }
        read = event;
    }
};

/// One cell for every granule, and one for each of its bytes once these are accessed
/// separately. All are zero at first, and take physical memory only where they are
/// used.
class Shadow {
  public:
    static constexpr std::size_t GRANULE = 4;

    explicit Shadow(std::size_t bytes)
        : granules_((bytes + GRANULE - 1) / GRANULE),
          mapped_bytes_(granules_ * (1 + GRANULE) * sizeof(Cell)) {
        if (granules_ == 0) return;
        void* mapping = mmap(
            nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0
        );
        if (mapping == MAP_FAILED) throw std::bad_alloc();
        // A hint, which may fail: page faults of small pages took most of the time.
        madvise(mapping, mapped_bytes_, MADV_HUGEPAGE);
        cells_ = static_cast<Cell*>(mapping);
    }
    ~Shadow() {
        if (cells_ != nullptr) munmap(cells_, mapped_bytes_);
    }
    Shadow(const Shadow&) = delete;
    Shadow& operator=(const Shadow&) = delete;

    std::size_t bytes() const { return granules_ * GRANULE; }

    /// Calls visit(cell, mask, offset) for every cell of a range until one returns
    /// true, and returns whether one did. The mask has a bit for each byte of the cell
    /// in the range.
    template <typename Visit>
    bool visit(
        std::size_t begin, std::size_t bytes, std::uint32_t generation, Visit visit
    ) {
        constexpr unsigned WHOLE = (1u << GRANULE) - 1;
        for (std::size_t offset = begin, end = begin + bytes; offset < end;) {
            std::size_t granule = offset / GRANULE;
            std::size_t first = offset % GRANULE;
            std::size_t count = std::min(GRANULE - first, end - offset);
            Cell& cell = cells_[granule];
            if (cell.generation != generation) cell = fresh(generation);
            if (count == GRANULE && !cell.is_split) {
                if (visit(cell, WHOLE, offset)) return true;
            } else {
                Cell* parts = cells_ + granules_ + granule * GRANULE;
                if (!cell.is_split) split(cell, parts);
                for (std::size_t byte = first; byte < first + count; ++byte) {
                    if (visit(parts[byte], 1u, granule * GRANULE + byte)) return true;
                }
            }
            offset += count;
        }
        return false;
    }

  private:
    static Cell fresh(std::uint32_t generation) {
        Cell cell{};
        cell.generation = generation;
        return cell;
    }

    static void split(Cell& cell, Cell* parts) {
        for (std::size_t byte = 0; byte < GRANULE; ++byte) {
            parts[byte] = cell;
            parts[byte].written = cell.written >> byte & 1;
        }
        cell.is_split = true;
    }

    std::size_t granules_;
    std::size_t mapped_bytes_;
    Cell* cells_ = nullptr;  // those of the granules, then those of the bytes
};

}  // namespace checking
}  // namespace emulator

// Stands in for CUDA's header of this name: thread blocks, their tiles of up to 32
// threads, and the converged threads of a warp.
#pragma once

#include <string.h>

#include <type_traits>
#include <utility>

#include "cuda_runtime.h"

namespace emulator {

inline unsigned threads_in_block() { return blockDim.x * blockDim.y * blockDim.z; }

inline unsigned rank_in_block() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

/// Shuffles a value of any size, four bytes at a time.
template <typename T>
T shuffle_object(
    ShuffleKind kind, unsigned mask, const T& value, unsigned operand, int width,
    const char* operation, Site site
) {
    static_assert(std::is_trivially_copyable_v<T>);
    constexpr std::size_t WORDS = (sizeof(T) + 3) / 4;
    std::uint32_t words[WORDS] = {};
    memcpy(words, &value, sizeof(T));
    for (std::uint32_t& word : words) {
        word = static_cast<std::uint32_t>(
            shuffle(kind, mask, word, operand, width, operation, site)
        );
    }
    T result = value;
    memcpy(static_cast<void*>(&result), words, sizeof(T));
    return result;
}

}  // namespace emulator

namespace cooperative_groups {

// ---- The block ----------------------------------------------------------------------

class thread_block {
  public:
    static void sync(emulator::Site site = emulator::Site::here()) {
        emulator::barrier("thread_block::sync", site, false);
    }
    static unsigned thread_rank() { return emulator::rank_in_block(); }
    static unsigned num_threads() { return emulator::threads_in_block(); }
    static unsigned size() { return num_threads(); }
    static dim3 group_index() { return dim3(blockIdx); }
    static dim3 thread_index() { return dim3(threadIdx); }
    static dim3 dim_threads() { return blockDim; }
    static dim3 group_dim() { return blockDim; }

  private:
    friend thread_block this_thread_block();
    thread_block() = default;
};

inline thread_block this_thread_block() { return {}; }

// ---- Tiles of a block or of a larger tile -------------------------------------------

template <unsigned SIZE, typename Parent = void>
class thread_block_tile;

/// The base of all tiles of a size: neighbouring lanes of one warp.
template <unsigned SIZE>
class tile_base {
    static_assert(
        SIZE >= 1 && SIZE <= 32 && (SIZE & (SIZE - 1)) == 0,
        "the emulator models tiles of 1, 2, 4, 8, 16 or 32 threads"
    );

  public:
    static unsigned thread_rank() { return emulator::lane() % SIZE; }
    static constexpr unsigned num_threads() { return SIZE; }
    static constexpr unsigned size() { return SIZE; }

    static void sync(emulator::Site site = emulator::Site::here()) {
        __syncwarp(mask(), site);
    }

    template <typename T>
    std::remove_cvref_t<T> shfl(
        T&& value, int rank, emulator::Site site = emulator::Site::here()
    ) const {
        auto source = static_cast<unsigned>(rank);
        return shuffle(
            emulator::ShuffleKind::index, value, source, "thread_block_tile::shfl", site
        );
    }
    template <typename T>
    std::remove_cvref_t<T> shfl_up(
        T&& value, unsigned distance, emulator::Site site = emulator::Site::here()
    ) const {
        return shuffle(
            emulator::ShuffleKind::up, value, distance, "thread_block_tile::shfl_up",
            site
        );
    }
    template <typename T>
    std::remove_cvref_t<T> shfl_down(
        T&& value, unsigned distance, emulator::Site site = emulator::Site::here()
    ) const {
        return shuffle(
            emulator::ShuffleKind::down, value, distance,
            "thread_block_tile::shfl_down", site
        );
    }
    template <typename T>
    std::remove_cvref_t<T> shfl_xor(
        T&& value, unsigned mask, emulator::Site site = emulator::Site::here()
    ) const {
        using emulator::ShuffleKind;
        return shuffle(
            ShuffleKind::exclusive_or, value, mask, "thread_block_tile::shfl_xor", site
        );
    }

    int any(int predicate, emulator::Site site = emulator::Site::here()) const {
        return __any_sync(mask(), predicate, site);
    }
    int all(int predicate, emulator::Site site = emulator::Site::here()) const {
        return __all_sync(mask(), predicate, site);
    }
    unsigned ballot(int predicate, emulator::Site site = emulator::Site::here()) const {
        return __ballot_sync(mask(), predicate, site) >> first_lane();
    }
    template <typename T>
    unsigned match_any(T value, emulator::Site site = emulator::Site::here()) const {
        return __match_any_sync(mask(), value, site) >> first_lane();
    }
    template <typename T>
    unsigned match_all(
        T value, int& predicate, emulator::Site site = emulator::Site::here()
    ) const {
        return __match_all_sync(mask(), value, &predicate, site) >> first_lane();
    }

  protected:
    tile_base() = default;

  private:
    static unsigned first_lane() { return emulator::lane() / SIZE * SIZE; }
    static unsigned mask() { return (0xffffffff >> (32 - SIZE)) << first_lane(); }

    template <typename T>
    static T shuffle(
        emulator::ShuffleKind kind, const T& value, unsigned operand,
        const char* operation, emulator::Site site
    ) {
        return emulator::shuffle_object(
            kind, mask(), value, operand, int{SIZE}, operation, site
        );
    }
};

template <unsigned SIZE, typename Parent>
class thread_block_tile : public tile_base<SIZE> {
  public:
    /// The rank of the tile among those of its parent.
    static unsigned meta_group_rank() { return Parent::thread_rank() / SIZE; }
    static unsigned meta_group_size() { return (Parent::size() + SIZE - 1) / SIZE; }

  private:
    template <unsigned TILE_SIZE, typename TileParent>
    friend thread_block_tile<TILE_SIZE, TileParent> tiled_partition(const TileParent&);
    thread_block_tile() = default;
};

/// A tile whose type does not name its parent.
template <unsigned SIZE>
class thread_block_tile<SIZE, void> : public tile_base<SIZE> {
  public:
    template <typename Parent>
    thread_block_tile(const thread_block_tile<SIZE, Parent>& tile)
        : meta_group_rank_(tile.meta_group_rank()),
          meta_group_size_(tile.meta_group_size()) {}

    unsigned meta_group_rank() const { return meta_group_rank_; }
    unsigned meta_group_size() const { return meta_group_size_; }

  private:
    unsigned meta_group_rank_;
    unsigned meta_group_size_;
};

template <unsigned SIZE, typename Parent>
thread_block_tile<SIZE, Parent> tiled_partition(const Parent&) {
    if constexpr (!std::is_same_v<Parent, thread_block>) {
        static_assert(SIZE < Parent::size(), "a tile is smaller than its parent");
    }
    return {};
}

// ---- The converged threads of a warp ------------------------------------------------

/// Ranks count the lanes of the group in ascending order, without gaps.
class coalesced_group {
  public:
    unsigned thread_rank() const {
        unsigned lanes_before = (1u << emulator::lane()) - 1;
        return static_cast<unsigned>(__popc(mask_ & lanes_before));
    }
    unsigned num_threads() const { return static_cast<unsigned>(__popc(mask_)); }
    unsigned size() const { return num_threads(); }
    unsigned meta_group_rank() const { return 0; }
    unsigned meta_group_size() const { return 1; }

    void sync(emulator::Site site = emulator::Site::here()) const {
        __syncwarp(mask_, site);
    }

    template <typename T>
    std::remove_cvref_t<T> shfl(
        T&& value, int rank, emulator::Site site = emulator::Site::here()
    ) const {
        return shuffle(
            value, static_cast<unsigned>(rank), "coalesced_group::shfl", site
        );
    }
    /// Threads without a neighbour at this distance keep their value.
    template <typename T>
    std::remove_cvref_t<T> shfl_up(
        T&& value, int distance, emulator::Site site = emulator::Site::here()
    ) const {
        unsigned rank = thread_rank();
        auto up = static_cast<unsigned>(distance);
        return shuffle(
            value, up <= rank ? rank - up : rank, "coalesced_group::shfl_up", site
        );
    }
    template <typename T>
    std::remove_cvref_t<T> shfl_down(
        T&& value, unsigned distance, emulator::Site site = emulator::Site::here()
    ) const {
        unsigned rank = thread_rank();
        bool inside = distance < size() - rank;
        return shuffle(
            value, inside ? rank + distance : rank, "coalesced_group::shfl_down", site
        );
    }

    int any(int predicate, emulator::Site site = emulator::Site::here()) const {
        return __any_sync(mask_, predicate, site);
    }
    int all(int predicate, emulator::Site site = emulator::Site::here()) const {
        return __all_sync(mask_, predicate, site);
    }
    unsigned ballot(int predicate, emulator::Site site = emulator::Site::here()) const {
        return ranks_of(__ballot_sync(mask_, predicate, site));
    }
    template <typename T>
    unsigned match_any(T value, emulator::Site site = emulator::Site::here()) const {
        return ranks_of(__match_any_sync(mask_, value, site));
    }
    template <typename T>
    unsigned match_all(
        T value, int& predicate, emulator::Site site = emulator::Site::here()
    ) const {
        return ranks_of(__match_all_sync(mask_, value, &predicate, site));
    }

  private:
    friend coalesced_group coalesced_threads(emulator::Site site);
    explicit coalesced_group(unsigned mask) : mask_(mask) {}

    unsigned ranks_of(unsigned lanes) const {
        unsigned ranks = 0;
        unsigned rank = 0;
        emulator::for_each_lane(mask_, [&](int lane) {
            ranks |= (lanes >> lane & 1) << rank++;
        });
        return ranks;
    }
    unsigned lane_of(unsigned rank) const {
        unsigned lanes = mask_;
        for (; rank > 0; --rank) lanes &= lanes - 1;
        return static_cast<unsigned>(__ffs(static_cast<int>(lanes)) - 1);
    }
    template <typename T>
    T shuffle(
        const T& value, unsigned rank, const char* operation, emulator::Site site
    ) const {
        using emulator::ShuffleKind;
        return emulator::shuffle_object(
            ShuffleKind::index, mask_, value, lane_of(rank), 32, operation, site
        );
    }

    unsigned mask_;
};

inline coalesced_group coalesced_threads(emulator::Site site = emulator::Site::here()) {
    return coalesced_group(__activemask(site));
}

// ---- Functions of any group ---------------------------------------------------------

template <typename Group>
void sync(const Group& group, emulator::Site site = emulator::Site::here()) {
    group.sync(site);
}

template <typename Group>
auto thread_rank(const Group& group) {
    return group.thread_rank();
}

template <typename Group>
auto group_size(const Group& group) {
    return group.num_threads();
}

/// The thread of rank 0 calls the function; CUDA leaves open which one does.
template <typename Group, typename Function, typename... Arguments>
void invoke_one(const Group& group, Function&& function, Arguments&&... arguments) {
    if (group.thread_rank() != 0) return;
    std::forward<Function>(function)(std::forward<Arguments>(arguments)...);
}

/// The thread of rank 0 of a tile or of converged threads calls the function; all get
/// its result.
template <typename Group, typename Function, typename... Arguments>
auto invoke_one_broadcast(
    const Group& group, Function&& function, Arguments&&... arguments
) {
    using Result = std::remove_cvref_t<std::invoke_result_t<Function, Arguments...>>;
    Result result{};
    if (group.thread_rank() == 0) {
        result =
            std::forward<Function>(function)(std::forward<Arguments>(arguments)...);
    }
    return group.shfl(result, 0);
}

}  // namespace cooperative_groups

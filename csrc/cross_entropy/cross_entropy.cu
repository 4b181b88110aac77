// Cross entropy of every row of a matrix of logits and the class that it should name.
//
//   loss[row] = logsumexp(x) - (1 - s) * x[target[row]] - s * mean(x)
//   grad_logits[row, :] = grad * (exp(x - logsumexp(x)) - (1 - s) * one_hot - s / n_cols)
//   x = logits[row, :], s = label_smoothing, one_hot[col] = (col == target[row])
//
// Layout   logits: columns contiguous; row r begins at (r / rows_per_batch) * stride_batch
//          + (r % rows_per_batch) * stride_row. All else is contiguous; grad has a stride,
//          which is 0 where there is one for all rows.
// Traffic  forward reads every logit once, however long the row; backward reads and
//          writes it once. Rows that are ignored are not read, unless the forward has
//          all of a row in flight before it knows. The ceilings are the bandwidths of a
//          read and of a copy.
// Limits   accumulates in float32. A row with NaN or +inf, or of -inf alone, is NaN, and
//          so is one whose target is no class. The gradient is as exact as float32 holds
//          the logsumexp: to 2^-24 of it. Rows are added up in an order that depends on
//          their number and length alone.
// Mirror   triton_kernels/cross_entropy/cross_entropy.py
// Source   Milakov & Gimelshein 2018, arXiv:1805.02867 (algorithm 3); label smoothing:
//          Szegedy et al. 2015, arXiv:1512.00567

#include "common/launch.cuh"
#include "common/math.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"
#include "common/vec.cuh"

// What the exponents of a row are relative to: its maximum. As long as nothing but -inf
// was seen it is 0: the sum stays 0, where -inf - -inf would make it NaN.
__device__ __forceinline__ float finite_origin(float max) {
    return max == -INFINITY ? 0.0f : max;
}

// How many threads are to be on a multiprocessor, which limits their registers: with 64
// bytes in flight for each thread, 1024 are twice what keeps an H200's memory busy.
constexpr int threads_per_sm(int elements_per_thread) {
    return elements_per_thread > 32 ? 640 : 1024;
}

// THREADS_PER_ROW threads have a row in flight at once, if it is but ONE_TILE of
// VECS_PER_THREAD vectors each, or else walk along it in such tiles.
template <
    typename T,
    int VEC_SIZE,
    int VECS_PER_THREAD,
    int THREADS_PER_ROW,
    bool ONE_TILE,
    bool SMOOTHED,
    int NUM_THREADS = threads_per_block(THREADS_PER_ROW)>
__global__ void
__launch_bounds__(NUM_THREADS, threads_per_sm(VECS_PER_THREAD* VEC_SIZE) / NUM_THREADS) cross_entropy_kernel(
    float* __restrict__ logsumexp_ptr,  // (n_rows)
    T* __restrict__ loss_ptr,           // (n_rows), or null
    float* __restrict__ partial_ptr,    // (n_blocks, 2) if the loss is reduced, or null
    const T* __restrict__ logits_ptr,   // (n_rows, n_cols)
    const int64_t* __restrict__ target_ptr,  // (n_rows)
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t logits_stride_batch,
    int64_t logits_stride_row,
    int64_t ignore_index,
    float label_smoothing,
    float inverse_n_cols
) {
    constexpr int BLOCK_M = NUM_THREADS / THREADS_PER_ROW;
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;
    constexpr int BLOCK_N = VECS_PER_THREAD * STEP;

    // -- tile: a block owns one long row or several short ones
    const int64_t row = int64_t{blockIdx.x} * BLOCK_M + threadIdx.x / THREADS_PER_ROW;
    const int thread = threadIdx.x % THREADS_PER_ROW;
    const int64_t target = row < n_rows ? target_ptr[row] : ignore_index;
    const bool is_counted = target != ignore_index;
    const bool is_class = target >= 0 && target < n_cols;
    logits_ptr +=
        row_offset(row, n_rows, rows_per_batch, logits_stride_batch, logits_stride_row);
    // What has no more than one tile does not wait for its target.
    const int64_t n_read = (ONE_TILE ? row < n_rows : is_counted) ? n_cols : 0;
    Vec<float, VEC_SIZE> x[VECS_PER_THREAD];
    const auto load_tile = [&](int64_t start, int n_left) {
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            x[i] = to_float(
                load<VEC_SIZE>(
                    logits_ptr + start + i * STEP,
                    i * STEP < n_left,
                    from_float<T>(-INFINITY)
                )
            );
        }
    };
    const auto max_of_tile = [&](float max) {
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) max = fmaxf(max, x[i][j]);
        }
        return max;
    };
    float thread_max = -INFINITY, thread_sum = 0.0f;
    float thread_gap = 0.0f, n_seen = 0.0f;  // sum of max - x, if SMOOTHED
    const auto add_tile = [&](float origin, int n_left) {
        #pragma unroll
        for (int i = 0; i < VECS_PER_THREAD; ++i) {
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) thread_sum += fast_exp(x[i][j] - origin);
        }
        if constexpr (SMOOTHED) {
            #pragma unroll
            for (int i = 0; i < VECS_PER_THREAD; ++i) {
                if (i * STEP >= n_left) continue;
                #pragma unroll
                for (int j = 0; j < VEC_SIZE; ++j) thread_gap += origin - x[i][j];
                n_seen += VEC_SIZE;
            }
        }
    };
    const int first_col = thread * VEC_SIZE;
    const int tile_n_left =
        static_cast<int>(n_read < BLOCK_N ? n_read : BLOCK_N) - first_col;
    if constexpr (ONE_TILE) load_tile(first_col, tile_n_left);

    // -- target: on its way while the row is read; no class has a logit of NaN
    float target_logit = NAN;
    if (thread == 0 && is_counted && is_class) {
        target_logit = to_float(logits_ptr[target]);
    }

    // -- max_sum: of the columns that this thread sees; the sum is rescaled as the
    // maximum grows, once in a tile
    if constexpr (ONE_TILE) {
        thread_max = max_of_tile(thread_max);
    } else {
        for (int64_t start = first_col; start < n_read; start += BLOCK_N) {
            const int n_left =
                static_cast<int>(n_read - start < BLOCK_N ? n_read - start : BLOCK_N);
            load_tile(start, n_left);
            const float new_max = max_of_tile(thread_max);
            const float origin = finite_origin(new_max);
            thread_sum *= fast_exp(thread_max - origin);
            if (SMOOTHED) thread_gap += n_seen * (origin - finite_origin(thread_max));
            add_tile(origin, n_left);
            thread_max = new_max;
        }
    }

    // -- combine: what the threads of a row have seen
    const float row_max = block_reduce<THREADS_PER_ROW>(thread_max, Max{});
    const float origin = finite_origin(row_max);
    if constexpr (ONE_TILE) {
        add_tile(origin, tile_n_left);
    } else {
        thread_sum *= fast_exp(thread_max - origin);
        if (SMOOTHED) thread_gap += n_seen * (origin - finite_origin(thread_max));
    }
    const float row_sum = block_reduce<THREADS_PER_ROW>(thread_sum, Sum{});
    const float log_sum = logf(row_sum);

    // -- loss: of what is missing to the maximum; such terms are positive and do not
    // cancel, however large the logits are
    float loss = log_sum + (1.0f - label_smoothing) * (origin - target_logit);
    if constexpr (SMOOTHED) {
        const float row_gap = block_reduce<THREADS_PER_ROW>(thread_gap, Sum{});
        loss += label_smoothing * inverse_n_cols * row_gap;
    }
    if (!is_counted) loss = 0.0f;

    // -- store: each loss, or the sum of a block's and how many rows of it count
    if (thread == 0 && row < n_rows) {
        logsumexp_ptr[row] = is_counted ? origin + log_sum : -INFINITY;
        if (loss_ptr) loss_ptr[row] = from_float<T>(loss);
    }
    if (partial_ptr) {
        Vec<float, 2> partial{loss, is_counted ? 1.0f : 0.0f};
        if constexpr (BLOCK_M > 1) {
            if (thread != 0) partial = {};
            partial = block_reduce<NUM_THREADS>(partial, Sum{});
        }
        if (threadIdx.x == 0) store(partial_ptr + 2 * int64_t{blockIdx.x}, partial);
    }
}

namespace {
constexpr int REDUCE_NUM_THREADS = 1024;
constexpr int REDUCE_LOADS = 4;  // in flight for every thread
}  // namespace

// One block adds up what the blocks of cross_entropy_kernel have left, in an order that
// is the same in every run.
template <typename T>
__global__ void __launch_bounds__(REDUCE_NUM_THREADS) cross_entropy_reduce_kernel(
    T* __restrict__ loss_ptr,               // ()
    float* __restrict__ n_counted_ptr,      // ()
    const float* __restrict__ partial_ptr,  // (n_blocks, 2)
    int64_t n_blocks,
    bool mean
) {
    // -- tile: the block owns everything; a vector holds what two blocks have left
    constexpr int VEC_SIZE = 4;
    const int64_t n_values = 2 * n_blocks;
    float loss = 0.0f, n_counted = 0.0f;

    // -- accumulate: losses, and the rows that count
    #pragma unroll REDUCE_LOADS
    for (int64_t i = threadIdx.x * VEC_SIZE; i < n_values;
         i += REDUCE_NUM_THREADS * VEC_SIZE) {
        const auto partial = load<VEC_SIZE>(partial_ptr + i, n_values - i, 0.0f);
        loss += partial[0] + partial[2];
        n_counted += partial[1] + partial[3];
    }

    // -- reduce: what the threads have
    loss = block_reduce<REDUCE_NUM_THREADS>(loss, Sum{});
    n_counted = block_reduce<REDUCE_NUM_THREADS>(n_counted, Sum{});

    // -- store: rounded once; the mean of no rows is 0 / 0
    if (threadIdx.x == 0) {
        *loss_ptr = from_float<T>(mean ? loss / n_counted : loss);
        *n_counted_ptr = n_counted;
    }
}

namespace {
// Small blocks, as for all elementwise kernels. What a thread has to find out before it
// reads is spread over more elements where those are of 16 bits, which leave less time.
constexpr int BACKWARD_NUM_THREADS = 128;
template <typename T>
constexpr int BACKWARD_ELEMENTS_PER_THREAD = sizeof(T) == 4 ? 8 : 32;
}  // namespace

// THREADS_PER_ROW threads share a tile of a row, or a row that is but ONE_TILE.
template <
    typename T,
    int VEC_SIZE,
    int VECS_PER_THREAD,
    int THREADS_PER_ROW,
    bool ONE_TILE>
__global__ void __launch_bounds__(BACKWARD_NUM_THREADS) cross_entropy_backward_kernel(
    T* __restrict__ out_ptr,                  // (n_rows, n_cols)
    const T* __restrict__ grad_ptr,           // (n_rows)
    const T* __restrict__ logits_ptr,         // (n_rows, n_cols)
    const int64_t* __restrict__ target_ptr,   // (n_rows)
    const float* __restrict__ logsumexp_ptr,  // (n_rows)
    const float* __restrict__ n_counted_ptr,  // (), or null where the loss is no mean
    int64_t n_rows,
    int64_t n_cols,
    int64_t grad_stride,
    int64_t rows_per_batch,
    int64_t logits_stride_batch,
    int64_t logits_stride_row,
    int64_t ignore_index,
    float label_smoothing,
    float inverse_n_cols
) {
    constexpr int STEP = THREADS_PER_ROW * VEC_SIZE;
    constexpr int BLOCK_M = BACKWARD_NUM_THREADS / THREADS_PER_ROW;
    constexpr int BLOCK_N = VECS_PER_THREAD * STEP;

    // -- tile: a block owns neighbouring columns of one row, or several short rows
    const unsigned tiles_per_row = ONE_TILE ? 1 : (n_cols + BLOCK_N - 1) / BLOCK_N;
    const int64_t row =
        int64_t{blockIdx.x / tiles_per_row} * BLOCK_M + threadIdx.x / THREADS_PER_ROW;
    if (row >= n_rows) return;
    const int64_t start = int64_t{blockIdx.x % tiles_per_row} * BLOCK_N;
    const int thread = threadIdx.x % THREADS_PER_ROW;
    const int first_col = thread * VEC_SIZE;  // of the tile
    const int n_left =
        static_cast<int>(n_cols - start < BLOCK_N ? n_cols - start : BLOCK_N) -
        first_col;
    logits_ptr +=
        row_offset(
            row, n_rows, rows_per_batch, logits_stride_batch, logits_stride_row
        ) +
        start + first_col;
    // Counted in vectors: else nvcc 13.0 takes the first store apart.
    Vec<T, VEC_SIZE>* const out_vec_ptr =
        reinterpret_cast<Vec<T, VEC_SIZE>*>(out_ptr + row * n_cols + start) + thread;

    // -- target: what all columns of the row share; no class has a gradient of NaN
    const int64_t target = target_ptr[row];
    const bool is_counted = target != ignore_index;
    const bool is_class = target >= 0 && target < n_cols;
    const float logsumexp = is_counted ? logsumexp_ptr[row] : 0.0f;
    const int64_t from_start = target - start;
    const int target_col =  // of the tile, or none
        from_start >= 0 && from_start < BLOCK_N ? static_cast<int>(from_start) : -1;
    float scale = is_class ? to_float(grad_ptr[row * grad_stride]) : NAN;
    if (n_counted_ptr) scale *= fast_reciprocal(*n_counted_ptr);
    if (!is_counted) scale = 0.0f;

    // -- load: nothing of a row that is ignored
    Vec<T, VEC_SIZE> x[VECS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        x[i] =
            load<VEC_SIZE>(logits_ptr + i * STEP, is_counted && i * STEP < n_left, T{});
    }

    // -- compute: the probability of each class, less what the target gives to it
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        Vec<float, VEC_SIZE> difference = to_float(x[i]);
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) {
            const float probability = fast_exp(difference[j] - logsumexp);
            difference[j] = probability - label_smoothing * inverse_n_cols;
        }
        // One vector of a row has the target.
        const int target_place = target_col - first_col - i * STEP;
        if (0 <= target_place && target_place < VEC_SIZE) {
            #pragma unroll
            for (int j = 0; j < VEC_SIZE; ++j) {
                difference[j] -= j == target_place ? 1.0f - label_smoothing : 0.0f;
            }
        }
        #pragma unroll
        for (int j = 0; j < VEC_SIZE; ++j) difference[j] *= scale;
        x[i] = from_float<T>(difference);
    }

    // -- store: rounded once
    #pragma unroll
    for (int i = 0; i < VECS_PER_THREAD; ++i) {
        if (i * STEP < n_left) out_vec_ptr[i * THREADS_PER_ROW] = x[i];
    }
}

namespace {

// As many threads for a row as its length keeps busy: of short rows few, each with up to
// 64 bytes in flight and as little as can be past the end. A block has as many rows as the
// caller has counted on at least.
template <typename T, int VEC_SIZE>
auto plan_cross_entropy(int64_t n_rows, int64_t n_cols, bool smoothed) {
    const auto with =
        [&]<int THREADS_PER_ROW, int VECS_PER_THREAD, bool ONE_TILE = true>() {
            constexpr int NUM_THREADS = threads_per_block(THREADS_PER_ROW);
            const auto kernel = [&]<bool SMOOTHED>() {
                return cross_entropy_kernel<
                    T,
                    VEC_SIZE,
                    VECS_PER_THREAD,
                    THREADS_PER_ROW,
                    ONE_TILE,
                    SMOOTHED>;
            };
            return Plan{
                smoothed ? kernel.template operator()<true>()
                         : kernel.template operator()<false>(),
                dim3(ceil_div(n_rows, NUM_THREADS / THREADS_PER_ROW)),
                dim3(NUM_THREADS)
            };
        };
    constexpr int LONG = 64 / (VEC_SIZE * sizeof(T));  // vectors of 64 bytes
    if constexpr (VEC_SIZE == 1) {
        // Single elements, which neighbouring threads read together.
        if (n_cols <= 64) return with.template operator()<8, 8>();
        if (n_cols <= 128) return with.template operator()<16, 8>();
        if (n_cols <= 256) return with.template operator()<32, 8>();
        if (n_cols <= 512) return with.template operator()<32, 16>();
        if (n_cols <= 1024) return with.template operator()<32, LONG, false>();
        if (n_cols <= 2048) return with.template operator()<128, 16>();
        if (n_cols <= 8192) return with.template operator()<128, LONG, false>();
    } else {
        const int64_t n_vecs = n_cols / VEC_SIZE;
        if (n_vecs <= 8) return with.template operator()<4, 2>();
        if (n_vecs <= 12) return with.template operator()<4, 3>();
        if (n_vecs <= 16) return with.template operator()<4, 4>();
        if (n_vecs <= 24) return with.template operator()<8, 3>();
        if (n_vecs <= 32) return with.template operator()<8, 4>();
        if (n_vecs <= 48) return with.template operator()<16, 3>();
        if (n_vecs <= 64) return with.template operator()<16, 4>();
        if (n_vecs <= 96) return with.template operator()<32, 3>();
        if (n_vecs <= 128) return with.template operator()<32, 4>();
        if (n_vecs <= 192) return with.template operator()<32, 6>();
        if (n_vecs <= 256) return with.template operator()<32, 8>();
        if (n_vecs <= 384) return with.template operator()<128, 3>();
        if (n_vecs <= 512) return with.template operator()<128, 4>();
        if (n_vecs <= 768) return with.template operator()<192, 4>();
        if (n_vecs <= 1024) return with.template operator()<256, 4>();
        if (n_vecs <= 1536) return with.template operator()<384, 4>();
        if (n_vecs <= 2048) return with.template operator()<512, 4>();
    }
    if (n_cols <= 65536) return with.template operator()<256, LONG, false>();
    if constexpr (sizeof(T) == 2 && VEC_SIZE > 1) {
        // The last blocks have the GPU for themselves, and are through with such rows,
        // which take them longer than memory, the sooner the more threads they have.
        if (n_cols > 131072) return with.template operator()<1024, LONG, false>();
    }
    return with.template operator()<512, LONG, false>();
}

// Rows of 3 * 2^k vectors as well have no more threads than find something of them.
template <typename T, int VEC_SIZE>
auto plan_cross_entropy_backward(int64_t n_rows, int64_t n_cols) {
    const auto with =
        [&]<int THREADS_PER_ROW, int VECS_PER_THREAD, bool ONE_TILE = true>() {
            const int64_t row_blocks =
                ceil_div(n_rows, BACKWARD_NUM_THREADS / THREADS_PER_ROW);
            const int64_t tiles_per_row =
                ceil_div(n_cols, THREADS_PER_ROW * VECS_PER_THREAD * VEC_SIZE);
            return Plan{
                cross_entropy_backward_kernel<
                    T,
                    VEC_SIZE,
                    VECS_PER_THREAD,
                    THREADS_PER_ROW,
                    ONE_TILE>,
                dim3(row_blocks * tiles_per_row),
                dim3(BACKWARD_NUM_THREADS)
            };
        };
    constexpr int VECS = BACKWARD_ELEMENTS_PER_THREAD<T> / VEC_SIZE;
    const int64_t n_vecs = n_cols / VEC_SIZE;
    if constexpr (VEC_SIZE == 1) {
        if (n_cols <= 8 * VECS) return with.template operator()<8, VECS>();
        if (n_cols <= 32 * VECS) return with.template operator()<32, VECS>();
    } else if constexpr (VECS == 4) {
        if (n_vecs <= 8) return with.template operator()<4, 2>();
        if (n_vecs <= 12) return with.template operator()<4, 3>();
        if (n_vecs <= 16) return with.template operator()<4, 4>();
        if (n_vecs <= 24) return with.template operator()<8, 3>();
        if (n_vecs <= 32) return with.template operator()<8, 4>();
        if (n_vecs <= 48) return with.template operator()<16, 3>();
        if (n_vecs <= 64) return with.template operator()<16, 4>();
        if (n_vecs <= 96) return with.template operator()<32, 3>();
        if (n_vecs <= 128) return with.template operator()<32, 4>();
        if (n_vecs <= 192) return with.template operator()<64, 3>();
        if (n_vecs <= 256) return with.template operator()<64, 4>();
        if (n_vecs <= 384) return with.template operator()<128, 3>();
    } else {
        static_assert(VECS == 2);
        if (n_vecs <= 16) return with.template operator()<8, 2>();
        if (n_vecs <= 24) return with.template operator()<8, 3>();
        if (n_vecs <= 32) return with.template operator()<16, 2>();
        if (n_vecs <= 48) return with.template operator()<16, 3>();
        if (n_vecs <= 64) return with.template operator()<32, 2>();
        if (n_vecs <= 96) return with.template operator()<32, 3>();
        if (n_vecs <= 128) return with.template operator()<64, 2>();
        if (n_vecs <= 192) return with.template operator()<64, 3>();
    }
    return with.template operator()<128, VECS, false>();
}

}  // namespace

// Vectors of 16 bytes where every row begins and ends at a multiple of them, else one
// element at a time. Where the losses are added up, a second launch does that.
cudaError_t cross_entropy(
    const Launcher& launch,
    DType dtype,
    void* loss,
    void* logsumexp,
    void* n_counted,
    void* partial,
    const void* logits,
    const void* target,
    int64_t n_rows,
    int64_t n_cols,
    int64_t rows_per_batch,
    int64_t logits_stride_batch,
    int64_t logits_stride_row,
    int64_t ignore_index,
    float label_smoothing,
    int64_t rows_per_block,
    bool mean,
    [[maybe_unused]] int rung
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        const bool vectors = has_vectors<T>(logits, logits_stride_row, 1) &&
                             has_vectors<T>(logits, logits_stride_batch, 1) &&
                             n_cols % VEC_SIZE == 0;
        const bool smoothed = label_smoothing != 0.0f;
        const auto plan =
            vectors ? plan_cross_entropy<T, VEC_SIZE>(n_rows, n_cols, smoothed)
                    : plan_cross_entropy<T, 1>(n_rows, n_cols, smoothed);
        const int64_t n_blocks = plan.grid.x;
        const int64_t most_blocks = ceil_div(n_rows, rows_per_block);
        if (partial && n_blocks > most_blocks) return cudaErrorInvalidValue;
        if (n_blocks > 0) {
            const cudaError_t error = launch(
                plan,
                static_cast<float*>(logsumexp),
                partial ? nullptr : static_cast<T*>(loss),
                static_cast<float*>(partial),
                static_cast<const T*>(logits),
                static_cast<const int64_t*>(target),
                n_rows,
                n_cols,
                rows_per_batch,
                logits_stride_batch,
                logits_stride_row,
                ignore_index,
                label_smoothing,
                1.0f / n_cols
            );
            if (error != cudaSuccess || !partial) return error;
        }
        return launch(
            Plan{cross_entropy_reduce_kernel<T>, dim3(1), dim3(REDUCE_NUM_THREADS)},
            static_cast<T*>(loss),
            static_cast<float*>(n_counted),
            static_cast<const float*>(partial),
            n_blocks,
            mean
        );
    });
}

cudaError_t cross_entropy_backward(
    const Launcher& launch,
    DType dtype,
    void* out,
    const void* grad,
    const void* logits,
    const void* target,
    const void* logsumexp,
    const void* n_counted,
    int64_t n_rows,
    int64_t n_cols,
    int64_t grad_stride,
    int64_t rows_per_batch,
    int64_t logits_stride_batch,
    int64_t logits_stride_row,
    int64_t ignore_index,
    float label_smoothing,
    [[maybe_unused]] int rung
) {
    return dispatch_float<cudaError_t>(dtype, [&]<typename T>() {
        constexpr int VEC_SIZE = VEC_BYTES / sizeof(T);
        const bool vectors = has_vectors<T>(out, n_cols, 1) &&
                             has_vectors<T>(logits, logits_stride_row, 1) &&
                             has_vectors<T>(logits, logits_stride_batch, 1);
        return launch(
            vectors ? plan_cross_entropy_backward<T, VEC_SIZE>(n_rows, n_cols)
                    : plan_cross_entropy_backward<T, 1>(n_rows, n_cols),
            static_cast<T*>(out),
            static_cast<const T*>(grad),
            static_cast<const T*>(logits),
            static_cast<const int64_t*>(target),
            static_cast<const float*>(logsumexp),
            static_cast<const float*>(n_counted),
            n_rows,
            n_cols,
            grad_stride,
            rows_per_batch,
            logits_stride_batch,
            logits_stride_row,
            ignore_index,
            label_smoothing,
            1.0f / n_cols
        );
    });
}

// Vec<T, SIZE>: SIZE neighbouring values, read and written by one instruction when they
// fill 16 bytes, the widest access that a thread of an H200 can make.
#pragma once

#include <initializer_list>

#include "common/dtype.cuh"

constexpr int VEC_BYTES = 16;

template <typename T, int SIZE>
struct alignas(SIZE * sizeof(T)) Vec {
    T values[SIZE];

    __device__ T& operator[](int i) { return values[i]; }
    __device__ const T& operator[](int i) const { return values[i]; }
};

template <int SIZE, typename T>
__device__ __forceinline__ Vec<T, SIZE> splat(T value) {
    Vec<T, SIZE> vec;
    #pragma unroll
    for (int i = 0; i < SIZE; ++i) vec[i] = value;
    return vec;
}

// A vector as words. A thread that may or may not read one chooses between words: between
// elements of 16 bits, the compiler would choose and assemble each by itself.
template <typename T, int SIZE>
using VecWords = std::conditional_t<
    sizeof(T) == 2 && sizeof(Vec<T, SIZE>) == VEC_BYTES, uint4, Vec<T, SIZE>>;

// The n_valid first of the SIZE values at ptr, and `fill` for the others. Only a full
// vector is read in one access, which needs ptr to be aligned to it.
template <int SIZE, typename T>
__device__ __forceinline__ Vec<T, SIZE> load(const T* ptr, int64_t n_valid, T fill) {
    VecWords<T, SIZE> words;
    if (n_valid >= SIZE) {
        words = *reinterpret_cast<const VecWords<T, SIZE>*>(ptr);
    } else {
        Vec<T, SIZE> vec = splat<SIZE>(fill);
        #pragma unroll
        for (int i = 0; i < SIZE - 1; ++i) {
            if (i < n_valid) vec[i] = ptr[i];
        }
        words = __builtin_bit_cast(VecWords<T, SIZE>, vec);
    }
    return __builtin_bit_cast(Vec<T, SIZE>, words);
}

// The values at ptr, or `fill` for all: where data never ends inside of a vector.
template <int SIZE, typename T>
__device__ __forceinline__ Vec<T, SIZE> load(const T* ptr, bool is_valid, T fill) {
    auto words = __builtin_bit_cast(VecWords<T, SIZE>, splat<SIZE>(fill));
    if (is_valid) words = *reinterpret_cast<const VecWords<T, SIZE>*>(ptr);
    return __builtin_bit_cast(Vec<T, SIZE>, words);
}

// The n_valid first of them, where it is known only at run time whether ptr is aligned.
template <int SIZE, typename T>
__device__ __forceinline__ Vec<T, SIZE> load(
    const T* ptr, int64_t n_valid, T fill, bool is_aligned
) {
    if (is_aligned) return load<SIZE>(ptr, n_valid, fill);
    Vec<T, SIZE> vec;
    #pragma unroll
    for (int i = 0; i < SIZE; ++i) vec[i] = i < n_valid ? ptr[i] : fill;
    return vec;
}

template <int SIZE, typename T>
__device__ __forceinline__ void store(T* ptr, const Vec<T, SIZE>& vec) {
    *reinterpret_cast<Vec<T, SIZE>*>(ptr) = vec;
}

template <int SIZE, typename T>
__device__ __forceinline__ void store(
    T* ptr, const Vec<T, SIZE>& vec, int64_t n_valid
) {
    if (n_valid >= SIZE) return store(ptr, vec);
    #pragma unroll
    for (int i = 0; i < SIZE - 1; ++i) {
        if (i < n_valid) ptr[i] = vec[i];
    }
}

// Likewise, where it is known only at run time whether ptr is aligned.
template <int SIZE, typename T>
__device__ __forceinline__ void store(
    T* ptr, const Vec<T, SIZE>& vec, int64_t n_valid, bool is_aligned
) {
    // A plain store of the vector the compiler would merge with those of the other case, into
    // stores of single values.
    if (is_aligned && n_valid >= SIZE) {
        using Words = std::conditional_t<sizeof(vec) == VEC_BYTES, uint4, uint2>;
        return __stwb(reinterpret_cast<Words*>(ptr), __builtin_bit_cast(Words, vec));
    }
    #pragma unroll
    for (int i = 0; i < SIZE; ++i) {
        if (i < n_valid) ptr[i] = vec[i];
    }
}

// SIZE values of a matrix with n_cols columns, counted row by row from `element` on, and
// zeros past the end. Without STRIDED they are neighbours in memory; with it they are in one
// row, with a stride_col of 1, or of 0 for a value that is broadcast.
template <int SIZE, bool STRIDED, typename T>
__device__ __forceinline__ Vec<T, SIZE> load_vec(
    const T* ptr, int64_t element, int64_t row, int64_t n_elements, int64_t n_cols,
    int64_t stride_row, int64_t stride_col
) {
    if constexpr (STRIDED) {
        const int64_t col = element - row * n_cols;
        if (element >= n_elements) return splat<SIZE>(T{});
        ptr += row * stride_row;
        if (SIZE == 1 || stride_col == 0) return splat<SIZE>(ptr[col * stride_col]);
        return *reinterpret_cast<const Vec<T, SIZE>*>(ptr + col);
    } else {
        return load<SIZE>(ptr + element, n_elements - element, T{});
    }
}

// Writes such values, as far as they exist, to rows whose columns are neighbours.
template <bool STRIDED, typename T, int SIZE>
__device__ __forceinline__ void store_vec(
    T* ptr, const Vec<T, SIZE>& vec, int64_t element, int64_t row, int64_t n_elements,
    int64_t n_cols, int64_t stride_row
) {
    if constexpr (STRIDED) {
        const int64_t col = element - row * n_cols;
        if (element < n_elements) store(ptr + row * stride_row + col, vec);
    } else {
        store(ptr + element, vec, n_elements - element);
    }
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}

template <int SIZE, typename T>
__device__ __forceinline__ Vec<float, SIZE> to_float(const Vec<T, SIZE>& x) {
    Vec<float, SIZE> result;
    #pragma unroll
    for (int i = 0; i < SIZE; ++i) result[i] = to_float(x[i]);
    return result;
}

// Rounds to nearest even, as torch does.
template <typename T>
__device__ __forceinline__ T from_float(float x) {
    if constexpr (std::is_same_v<T, __half>) return __float2half_rn(x);
    if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16_rn(x);
    if constexpr (std::is_same_v<T, float>) return x;
}

// Two values are converted by one instruction where their type has a packed form.
template <typename T, int SIZE>
__device__ __forceinline__ Vec<T, SIZE> from_float(const Vec<float, SIZE>& x) {
    Vec<T, SIZE> result;
    if constexpr (std::is_same_v<T, float> || SIZE % 2 == 1) {
        #pragma unroll
        for (int i = 0; i < SIZE; ++i) result[i] = from_float<T>(x[i]);
    } else {
        #pragma unroll
        for (int i = 0; i < SIZE; i += 2) {
            if constexpr (std::is_same_v<T, __half>) {
                const __half2 pair = __floats2half2_rn(x[i], x[i + 1]);
                result[i] = pair.x, result[i + 1] = pair.y;
            } else {
                const __nv_bfloat162 pair = __floats2bfloat162_rn(x[i], x[i + 1]);
                result[i] = pair.x, result[i + 1] = pair.y;
            }
        }
    }
    return result;
}

// Where the rows of a tensor begin, whose columns are neighbours.
struct Rows {
    const void* ptr;
    int64_t stride_row;
    int64_t stride_batch = 0;
};

// Whether all of them can be read in vectors: each row begins at a multiple of 16 bytes.
inline bool have_vectors(DType dtype, std::initializer_list<Rows> tensors) {
    const int64_t element_bytes = element_bytes_of(dtype);
    for (const Rows& rows : tensors) {
        if (reinterpret_cast<uintptr_t>(rows.ptr) % VEC_BYTES != 0 ||
            rows.stride_row * element_bytes % VEC_BYTES != 0 ||
            rows.stride_batch * element_bytes % VEC_BYTES != 0) {
            return false;
        }
    }
    return true;
}

// Calls `body.template operator()<T, VEC_SIZE>()` with the T of `dtype` and its vectors of
// 16 bytes, or with single elements, and returns its Result.
template <typename Result, typename Body>
Result dispatch_vectors(DType dtype, bool vectors, Body&& body) {
    return dispatch_float<Result>(dtype, [&]<typename T>() {
        return vectors ? body.template operator()<T, VEC_BYTES / int{sizeof(T)}>()
                       : body.template operator()<T, 1>();
    });
}

// Whether a tensor can be read in vectors: every row of it begins at a multiple of 16
// bytes, and its columns are neighbours, or all the same.
template <typename T>
bool has_vectors(const void* ptr, int64_t stride_row, int64_t stride_col) {
    return reinterpret_cast<uintptr_t>(ptr) % VEC_BYTES == 0 &&
           stride_row * int64_t{sizeof(T)} % VEC_BYTES == 0 &&
           (stride_col == 0 || stride_col == 1);
}

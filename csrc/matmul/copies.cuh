// What a product is of, and the launches that copy its operands where they cannot be read in
// place.
#pragma once

#include <utility>

#include "common/launch.cuh"
#include "common/vec.cuh"
#include "matmul/align.cuh"
#include "matmul/model.cuh"

// A matrix as it lies in memory, whatever its rows are in the product.
struct Matrix {
    const void* ptr;
    int64_t n_rows, n_cols;
    int64_t stride_batch, stride_row;
    bool along_k = true;         // its rows are
    bool is_transposed = false;  // the twin reads a copy that has its columns as rows
    int n_planes = 1;  // 2: one that has the large and the small parts of its elements
    bool is_padded = false;  // rows may be read to the end of a vector

    bool is_aligned(DType dtype) const {
        return have_vectors(dtype, {{ptr, stride_row, stride_batch}});
    }
    // Whether rows begin and end at multiples of 4 bytes.
    bool has_words(DType dtype) const {
        const int64_t element_bytes = element_bytes_of(dtype);
        return reinterpret_cast<uintptr_t>(ptr) % 4 == 0 &&
               stride_row * element_bytes % 4 == 0 &&
               stride_batch * element_bytes % 4 == 0 &&
               (is_padded || n_cols * element_bytes % 4 == 0);
    }
    bool is_copied(DType dtype) const {
        return !is_aligned(dtype) || is_transposed || n_planes > 1;
    }
    int64_t n_matrices(int64_t n_batches) const {
        return stride_batch == 0 ? 1 : n_batches;
    }
    int64_t n_elements(int64_t n_batches) const {
        return n_matrices(n_batches) * n_rows * n_cols;
    }
    int64_t n_copied(DType dtype, int64_t n_batches) const {
        return is_copied(dtype) ? n_elements(n_batches) * (1 + n_planes) / 2 : 0;
    }
    // Elements from row to row of a copy.
    int64_t copy_stride(DType dtype) const {
        const int64_t n_copy_cols = is_transposed ? n_rows : n_cols;
        return align::stride_of(n_copy_cols, element_bytes_of(dtype));
    }
    // Of itself, or of its copy.
    bool has_lines(DType dtype) const {
        const int64_t stride = is_copied(dtype) ? copy_stride(dtype) : stride_row;
        return stride * element_bytes_of(dtype) % model::LINE_BYTES == 0;
    }
};

// What the launches are of.
struct Product {
    Call call;
    Cut cut;
    Matrix out, a, b;
    bool b_is_left;  // of float32: see tf32_twin.cuh
    void* out_ptr;   // of out, to write to
    const void* bias;
    void* parts;
    int activation;
    bool begins_early;  // while the launch before it ends
};

// Which operand of float32 is on the left: where only one could not be on the right without a
// copy, that one, or else the larger one.
inline void choose_left(Product& product) {
    const bool splits = product.call.precision == Precision::tf32x3;
    const auto needs_copy = [&](const Matrix& x) { return splits || !x.along_k; };
    const auto size_of = [&](const Matrix& x) {
        return x.n_elements(product.call.n_batches);
    };
    const Matrix &a = product.a, &b = product.b;
    product.b_is_left =
        needs_copy(a) != needs_copy(b) ? needs_copy(b) : size_of(a) < size_of(b);
    Matrix& right = product.b_is_left ? product.a : product.b;
    right.is_transposed = !right.along_k;
    right.n_planes = splits ? 2 : 1;
}

// Copies the operands that the twin cannot read in place, one behind the other.
template <typename T>
cudaError_t launch_copies(const Launcher& launch, Product& product, void* copies) {
    using namespace align;
    const DType dtype = product.call.dtype;
    T* copy = static_cast<T*>(copies);
    for (Matrix* x : {&product.a, &product.b}) {
        if (!x->is_copied(dtype)) continue;
        const int64_t stride = x->copy_stride(dtype);
        const int64_t n_matrices = x->n_matrices(product.call.n_batches);
        const int64_t plane_size =
            n_matrices * (x->is_transposed ? x->n_cols : x->n_rows) * stride;
        const auto start = [&](auto kernel, int64_t rows, int64_t cols) {
            const int64_t n_blocks =
                ceil_div(x->n_rows, rows) * ceil_div(x->n_cols, cols);
            return launch(
                Plan{
                    .kernel = kernel,
                    .grid = dim3(n_blocks * n_matrices),
                    .block = dim3(NUM_THREADS),
                    .is_dependent = true
                },
                copy, x->ptr, x->n_rows, x->n_cols, x->stride_batch, x->stride_row,
                stride, plane_size
            );
        };
        const auto start_planes = [&]<int NUM_PLANES>() {
            if constexpr (sizeof(T) == 4) {
                const auto kernel = matmul_transpose_kernel<T, NUM_PLANES>;
                if (x->is_transposed) return start(kernel, SQUARE_SIZE, SQUARE_SIZE);
            }
            const auto kernel = matmul_align_kernel<T, NUM_PLANES>;
            return start(kernel, ROWS_PER_BLOCK, COLS_PER_BLOCK);
        };
        cudaError_t error = cudaSuccess;
        if constexpr (sizeof(T) == 4) {
            if (x->n_planes == 2) error = start_planes.template operator()<2>();
        }
        if (x->n_planes == 1) error = start_planes.template operator()<1>();
        if (error != cudaSuccess) return error;
        x->ptr = copy;
        if (x->is_transposed) std::swap(x->n_rows, x->n_cols);
        x->along_k = x->along_k || x->is_transposed;
        x->stride_row = stride;
        if (x->stride_batch != 0) x->stride_batch = x->n_rows * stride;
        x->is_padded = true;
        copy += x->n_planes * plane_size;
    }
    return cudaSuccess;
}

#include "native.h"

cudaError_t geglu(
    const Launcher& launch, DType dtype, void* out, const void* value, const void* gate,
    int64_t n_elements, int64_t n_cols, int64_t value_stride_row,
    int64_t value_stride_col, int64_t gate_stride_row, int64_t gate_stride_col,
    bool approximate_tanh, int rung
);

static const native::Binding geglu_binding("geglu", &geglu);

cudaError_t geglu_backward(
    const Launcher& launch, DType dtype, void* value_grad, void* gate_grad,
    const void* grad, const void* value, const void* gate, int64_t n_elements,
    int64_t n_cols, int64_t out_stride_row, int64_t grad_stride_row,
    int64_t grad_stride_col, int64_t value_stride_row, int64_t value_stride_col,
    int64_t gate_stride_row, int64_t gate_stride_col, bool approximate_tanh, int rung
);

static const native::Binding geglu_backward_binding("geglu_backward", &geglu_backward);

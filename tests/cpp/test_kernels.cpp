// The launchers as a C++ program calls them, without Python: against a reference in double,
// and with a launch that CUDA refuses.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "common/dtype.cuh"
#include "common/launch.cuh"

cudaError_t add(
    const Launcher& launch, DType dtype, void* out, const void* x, const void* y,
    int64_t n_elements, int64_t n_cols, int64_t x_stride_row, int64_t x_stride_col,
    int64_t y_stride_row, int64_t y_stride_col, int rung
);

cudaError_t gelu(
    const Launcher& launch, DType dtype, void* out, const void* x, int64_t n_elements,
    int64_t n_cols, int64_t x_stride_row, int64_t x_stride_col, bool approximate_tanh,
    int rung
);

cudaError_t softmax(
    const Launcher& launch, DType dtype, void* out, const void* x, int64_t n_rows,
    int64_t n_cols, int64_t rows_per_batch, int64_t x_stride_batch,
    int64_t x_stride_row, int rung
);

namespace {

// A few roundings of float32: all values here are of the order of one.
constexpr double TOLERANCE = 1e-6;

int failures = 0;

void expect(bool condition, const std::string& what) {
    std::printf("%s %s\n", condition ? "ok    " : "FAILED", what.c_str());
    if (!condition) ++failures;
}

void expect_close(
    const std::vector<float>& actual, const std::vector<double>& expected,
    const std::string& what
) {
    double largest_error = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
        const double error = std::abs(actual[i] - expected[i]);
        // Written so that NaN counts as an error.
        if (!(error <= largest_error)) largest_error = error;
    }
    expect(
        largest_error <= TOLERANCE, what + ", error " + std::to_string(largest_error)
    );
}

std::vector<float> waves(int64_t n, double frequency) {
    std::vector<float> values(n);
    for (int64_t i = 0; i < n; ++i) values[i] = 4 * std::sin(frequency * i);
    return values;
}

const Launcher launch{cudaStream_t{}};

void test_add(int64_t n) {
    const std::vector<float> x = waves(n, 0.1), y = waves(n, 0.7);
    std::vector<float> out(n);
    std::vector<double> expected(n);
    for (int64_t i = 0; i < n; ++i) expected[i] = double{x[i]} + double{y[i]};
    const cudaError_t error =
        add(launch, DType::float32, out.data(), x.data(), y.data(), n, n, n, 1, n, 1,
            0);
    expect(error == cudaSuccess, "add is launched");
    expect_close(out, expected, "add of " + std::to_string(n));
}

void test_gelu(int64_t n, bool approximate_tanh) {
    const std::vector<float> x = waves(n, 0.1);
    std::vector<float> out(n);
    std::vector<double> expected(n);
    for (int64_t i = 0; i < n; ++i) {
        const double v = x[i];
        const double inner = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
        expected[i] = approximate_tanh ? 0.5 * v * (1 + std::tanh(inner))
                                       : 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
    }
    const cudaError_t error = gelu(
        launch, DType::float32, out.data(), x.data(), n, n, n, 1, approximate_tanh, 0
    );
    expect(error == cudaSuccess, "gelu is launched");
    expect_close(out, expected, "gelu of " + std::to_string(n));
}

void test_softmax(int64_t n_rows, int64_t n_cols) {
    const std::vector<float> x = waves(n_rows * n_cols, 0.1);
    std::vector<float> out(x.size());
    std::vector<double> expected(x.size());
    for (int64_t row = 0; row < n_rows; ++row) {
        const float* const first = &x[row * n_cols];
        const double row_max = *std::max_element(first, first + n_cols);
        double row_sum = 0;
        for (int64_t col = 0; col < n_cols; ++col)
            row_sum += std::exp(first[col] - row_max);
        for (int64_t col = 0; col < n_cols; ++col) {
            expected[row * n_cols + col] = std::exp(first[col] - row_max) / row_sum;
        }
    }
    const cudaError_t error = softmax(
        launch, DType::float32, out.data(), x.data(), n_rows, n_cols, n_rows, 0, n_cols,
        0
    );
    expect(error == cudaSuccess, "softmax is launched");
    expect_close(
        out, expected,
        "softmax of " + std::to_string(n_rows) + "x" + std::to_string(n_cols)
    );
}

void test_plan() {
    float x[4]{}, out[4];
    std::vector<PlanDescription> plans;
    const Launcher describe(90, &plans);
    const cudaError_t error =
        softmax(describe, DType::float32, out, x, 1, 4, 1, 0, 4, 0);
    expect(error == cudaSuccess, "softmax is described");
    expect(plans.size() == 1, "softmax launches one kernel");
    Dl_info kernel{};
    expect(
        dladdr(plans[0].kernel, &kernel) != 0 && kernel.dli_sname != nullptr &&
            std::string(kernel.dli_sname).find("softmax_kernelIf") != std::string::npos,
        "softmax launches softmax_kernel<float"
    );
}

// A grid without blocks is refused, and the next launch is none the worse for it.
void test_refused_launch() {
    float out[1], x[1]{}, y[1]{};
    const cudaError_t error =
        add(launch, DType::float32, out, x, y, 0, 0, 0, 1, 0, 1, 0);
    expect(error != cudaSuccess, "a grid without blocks is refused");
    expect(
        !std::string(cudaGetErrorString(error)).empty(),
        std::string("the error says: ") + cudaGetErrorString(error)
    );
    expect(cudaGetLastError() == cudaSuccess, "the error is not left behind");
    test_add(1);
}

}  // namespace

int main() {
    test_add(1003);
    test_gelu(1003, false);
    test_gelu(1003, true);
    test_softmax(5, 1);
    test_softmax(3, 781);
    test_softmax(2, 40000);
    test_plan();
    test_refused_launch();
    std::printf("%d failed\n", failures);
    return failures == 0 ? 0 : 1;
}

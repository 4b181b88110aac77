// The functions of device/special_functions.h, in double precision.

#include "../device/special_functions.h"

#include <cmath>
#include <numbers>

namespace emulator {

// Both are exact for multiples of one half.

double sine_of_pi_times(double x) {
    double reduced = std::fmod(x, 2.0);
    double half_turns = std::nearbyint(2 * reduced);
    double angle = std::numbers::pi * (reduced - half_turns / 2);
    switch (static_cast<int>(half_turns) & 3) {
        case 0:
            return std::sin(angle);
        case 1:
            return std::cos(angle);
        case 2:
            return -std::sin(angle);
        default:
            return -std::cos(angle);
    }
}

double cosine_of_pi_times(double x) {
    double reduced = std::fmod(std::fabs(x), 2.0);
    double half_turns = std::nearbyint(2 * reduced);
    double angle = std::numbers::pi * (reduced - half_turns / 2);
    switch (static_cast<int>(half_turns) & 3) {
        case 0:
            return std::cos(angle);
        case 1:
            return -std::sin(angle);
        case 2:
            return -std::cos(angle);
        default:
            return std::sin(angle);
    }
}

namespace {

constexpr int NEWTON_STEPS = 4;  // from 3 digits on, each doubles their number
constexpr double SLOPE = 2 * std::numbers::inv_sqrtpi;  // of erf at 0

/// Winitzki's approximation of the x >= 0 with erfc(x) = z, for z from 0 to 1.
double approximate_inverse_erfc(double z) {
    constexpr double A = 0.147;
    double logarithm = std::log(z) + std::log(2 - z);
    double half = 2 / (std::numbers::pi * A) + logarithm / 2;
    return std::sqrt(std::sqrt(half * half - logarithm / A) - half);
}

}  // namespace

double inverse_erf(double y) {
    double magnitude = std::fabs(y);
    if (!(magnitude <= 0.5)) return std::copysign(inverse_erfc(1 - magnitude), y);
    double x = std::copysign(approximate_inverse_erfc(1 - magnitude), y);
    for (int i = 0; i < NEWTON_STEPS; ++i) {
        x -= (std::erf(x) - y) / (SLOPE * std::exp(-x * x));
    }
    return x;
}

double inverse_erfc(double y) {
    if (!(y >= 0 && y <= 2)) return NAN;
    if (y == 0 || y == 2) return y == 0 ? INFINITY : -INFINITY;
    if (y > 1.5) return -inverse_erfc(2 - y);
    if (y >= 0.5) return inverse_erf(1 - y);
    // On the logarithm, because erfc is nearly exponential here.
    double x = approximate_inverse_erfc(y);
    double wanted = std::log(y);
    for (int i = 0; i < NEWTON_STEPS; ++i) {
        double value = std::erfc(x);
        x += (std::log(value) - wanted) * value / (SLOPE * std::exp(-x * x));
    }
    return x;
}

double scaled_erfc(double x) {
    constexpr double LARGE = 25;
    if (x < LARGE) return std::exp(x * x) * std::erfc(x);
    double square = 1 / (x * x);
    double series = 1;  // the asymptotic one
    for (double factor = 4.5; factor > 0; --factor)
        series = 1 - factor * square * series;
    return std::numbers::inv_sqrtpi / x * series;
}

}  // namespace emulator

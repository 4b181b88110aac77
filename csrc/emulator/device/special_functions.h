// Mathematical functions of CUDA that C lacks or has had since C23 only.
#pragma once

#include <math.h>

namespace emulator {

// Defined in runtime/special_functions.cpp.
double sine_of_pi_times(double x);
double cosine_of_pi_times(double x);
double inverse_erf(double y);
double inverse_erfc(double y);
double scaled_erfc(double x);  // exp(x * x) * erfc(x)

}  // namespace emulator

// C linkage, because newer C libraries declare these four themselves.
extern "C" inline double sinpi(double x) noexcept {
    return emulator::sine_of_pi_times(x);
}
extern "C" inline double cospi(double x) noexcept {
    return emulator::cosine_of_pi_times(x);
}
extern "C" inline float sinpif(float x) noexcept {
    return static_cast<float>(emulator::sine_of_pi_times(x));
}
extern "C" inline float cospif(float x) noexcept {
    return static_cast<float>(emulator::cosine_of_pi_times(x));
}

inline void sincospi(double x, double* sine, double* cosine) {
    *sine = sinpi(x);
    *cosine = cospi(x);
}
inline void sincospif(float x, float* sine, float* cosine) {
    *sine = sinpif(x);
    *cosine = cospif(x);
}

// ---- The normal distribution --------------------------------------------------------

inline double erfinv(double y) { return emulator::inverse_erf(y); }
inline float erfinvf(float y) { return static_cast<float>(erfinv(y)); }
inline double erfcinv(double y) { return emulator::inverse_erfc(y); }
inline float erfcinvf(float y) { return static_cast<float>(erfcinv(y)); }
inline double erfcx(double x) { return emulator::scaled_erfc(x); }
inline float erfcxf(float x) { return static_cast<float>(erfcx(x)); }

inline double normcdf(double x) { return 0.5 * ::erfc(-x * 0.70710678118654752); }
inline float normcdff(float x) { return static_cast<float>(normcdf(x)); }
inline double normcdfinv(double p) { return -1.4142135623730951 * erfcinv(2 * p); }
inline float normcdfinvf(float p) { return static_cast<float>(normcdfinv(p)); }

// ---- Roots and lengths --------------------------------------------------------------

inline double rcbrt(double x) { return 1.0 / ::cbrt(x); }
inline float rcbrtf(float x) { return static_cast<float>(rcbrt(x)); }
inline double rhypot(double x, double y) { return 1.0 / ::hypot(x, y); }
inline float rhypotf(float x, float y) { return static_cast<float>(rhypot(x, y)); }
inline double norm3d(double x, double y, double z) { return ::hypot(::hypot(x, y), z); }
inline float norm3df(float x, float y, float z) {
    return static_cast<float>(norm3d(x, y, z));
}
inline double rnorm3d(double x, double y, double z) { return 1.0 / norm3d(x, y, z); }
inline float rnorm3df(float x, float y, float z) {
    return static_cast<float>(rnorm3d(x, y, z));
}
inline double norm4d(double x, double y, double z, double w) {
    return ::hypot(::hypot(x, y), ::hypot(z, w));
}
inline float norm4df(float x, float y, float z, float w) {
    return static_cast<float>(norm4d(x, y, z, w));
}

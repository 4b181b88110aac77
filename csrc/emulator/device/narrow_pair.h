// The common base of __half2 and __nv_bfloat162.
#pragma once

#include "narrow_float.h"

namespace emulator {

/// Base of __half2 and __nv_bfloat162, whose operations work element by element.
template <typename Self, typename Element>
struct NarrowPair {
    Element x;
    Element y;

    NarrowPair() = default;
    NarrowPair(const Element& x, const Element& y) : x(x), y(y) {}

    friend Self __hadd2(Self a, Self b) { return {a.x + b.x, a.y + b.y}; }
    friend Self __hsub2(Self a, Self b) { return {a.x - b.x, a.y - b.y}; }
    friend Self __hmul2(Self a, Self b) { return {a.x * b.x, a.y * b.y}; }
    friend Self __h2div(Self a, Self b) { return {a.x / b.x, a.y / b.y}; }
    friend Self __hfma2(Self a, Self b, Self c) {
        return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
    }
    friend Self __hadd2_rn(Self a, Self b) { return __hadd2(a, b); }
    friend Self __hsub2_rn(Self a, Self b) { return __hsub2(a, b); }
    friend Self __hmul2_rn(Self a, Self b) { return __hmul2(a, b); }
    friend Self __hadd2_sat(Self a, Self b) {
        return {__hadd_sat(a.x, b.x), __hadd_sat(a.y, b.y)};
    }
    friend Self __hsub2_sat(Self a, Self b) {
        return {__hsub_sat(a.x, b.x), __hsub_sat(a.y, b.y)};
    }
    friend Self __hmul2_sat(Self a, Self b) {
        return {__hmul_sat(a.x, b.x), __hmul_sat(a.y, b.y)};
    }
    friend Self __hfma2_sat(Self a, Self b, Self c) {
        return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)};
    }
    friend Self __hfma2_relu(Self a, Self b, Self c) {
        return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};
    }
    friend Self __hneg2(Self a) { return {-a.x, -a.y}; }
    friend Self __habs2(Self a) { return {__habs(a.x), __habs(a.y)}; }
    friend Self __hmax2(Self a, Self b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
    friend Self __hmin2(Self a, Self b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }

    friend Self __hmax2_nan(Self a, Self b) {
        return {__hmax_nan(a.x, b.x), __hmax_nan(a.y, b.y)};
    }
    friend Self __hmin2_nan(Self a, Self b) {
        return {__hmin_nan(a.x, b.x), __hmin_nan(a.y, b.y)};
    }

    friend Self operator+(const Self& a, const Self& b) { return __hadd2(a, b); }
    friend Self operator-(const Self& a, const Self& b) { return __hsub2(a, b); }
    friend Self operator*(const Self& a, const Self& b) { return __hmul2(a, b); }
    friend Self operator/(const Self& a, const Self& b) { return __h2div(a, b); }
    friend Self& operator+=(Self& a, const Self& b) { return a = __hadd2(a, b); }
    friend Self& operator-=(Self& a, const Self& b) { return a = __hsub2(a, b); }
    friend Self& operator*=(Self& a, const Self& b) { return a = __hmul2(a, b); }
    friend Self& operator/=(Self& a, const Self& b) { return a = __h2div(a, b); }
    friend Self operator+(const Self& a) { return a; }
    friend Self operator-(const Self& a) { return __hneg2(a); }

    /// 1 for each element that satisfies the comparison, 0 for the others.
    friend Self __heq2(Self a, Self b) {
        return truth(__heq(a.x, b.x), __heq(a.y, b.y));
    }
    friend Self __hne2(Self a, Self b) {
        return truth(__hne(a.x, b.x), __hne(a.y, b.y));
    }
    friend Self __hlt2(Self a, Self b) {
        return truth(__hlt(a.x, b.x), __hlt(a.y, b.y));
    }
    friend Self __hle2(Self a, Self b) {
        return truth(__hle(a.x, b.x), __hle(a.y, b.y));
    }
    friend Self __hgt2(Self a, Self b) {
        return truth(__hgt(a.x, b.x), __hgt(a.y, b.y));
    }
    friend Self __hge2(Self a, Self b) {
        return truth(__hge(a.x, b.x), __hge(a.y, b.y));
    }

    friend Self __hisnan2(Self a) { return truth(__hisnan(a.x), __hisnan(a.y)); }

    /// Whether both elements satisfy the comparison.
    friend bool __hbeq2(Self a, Self b) { return a == b; }
    friend bool __hbne2(Self a, Self b) { return __hne(a.x, b.x) && __hne(a.y, b.y); }
    friend bool __hblt2(Self a, Self b) { return a < b; }
    friend bool __hble2(Self a, Self b) { return a <= b; }
    friend bool __hbgt2(Self a, Self b) { return a > b; }
    friend bool __hbge2(Self a, Self b) { return a >= b; }
    friend bool operator==(const Self& a, const Self& b) {
        return a.x == b.x && a.y == b.y;
    }
    friend bool operator!=(const Self& a, const Self& b) {
        return a.x != b.x && a.y != b.y;
    }
    friend bool operator<(const Self& a, const Self& b) {
        return a.x < b.x && a.y < b.y;
    }
    friend bool operator<=(const Self& a, const Self& b) {
        return a.x <= b.x && a.y <= b.y;
    }
    friend bool operator>(const Self& a, const Self& b) {
        return a.x > b.x && a.y > b.y;
    }
    friend bool operator>=(const Self& a, const Self& b) {
        return a.x >= b.x && a.y >= b.y;
    }

    friend float __low2float(Self a) { return a.x; }
    friend float __high2float(Self a) { return a.y; }

    friend Self h2sqrt(Self a) { return {hsqrt(a.x), hsqrt(a.y)}; }
    friend Self h2rsqrt(Self a) { return {hrsqrt(a.x), hrsqrt(a.y)}; }
    friend Self h2rcp(Self a) { return {hrcp(a.x), hrcp(a.y)}; }
    friend Self h2exp(Self a) { return {hexp(a.x), hexp(a.y)}; }
    friend Self h2exp2(Self a) { return {hexp2(a.x), hexp2(a.y)}; }
    friend Self h2log(Self a) { return {hlog(a.x), hlog(a.y)}; }
    friend Self h2log2(Self a) { return {hlog2(a.x), hlog2(a.y)}; }
    friend Self h2exp10(Self a) { return {hexp10(a.x), hexp10(a.y)}; }
    friend Self h2log10(Self a) { return {hlog10(a.x), hlog10(a.y)}; }
    friend Self h2sin(Self a) { return {hsin(a.x), hsin(a.y)}; }
    friend Self h2cos(Self a) { return {hcos(a.x), hcos(a.y)}; }
    friend Self h2floor(Self a) { return {hfloor(a.x), hfloor(a.y)}; }
    friend Self h2ceil(Self a) { return {hceil(a.x), hceil(a.y)}; }
    friend Self h2trunc(Self a) { return {htrunc(a.x), htrunc(a.y)}; }
    friend Self h2rint(Self a) { return {hrint(a.x), hrint(a.y)}; }
    friend Self h2tanh(Self a) { return {htanh(a.x), htanh(a.y)}; }

  private:
    static Self truth(bool x, bool y) {
        return {Element(x ? 1.0f : 0.0f), Element(y ? 1.0f : 0.0f)};
    }
};

}  // namespace emulator

// Arithmetic that is checked bit by bit: half, bfloat16, and functions on bits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/ptx/math.cuh"
#include "launch.h"

static_assert(sizeof(float3) == 12 && alignof(float3) == 4);
static_assert(sizeof(float4) == 16 && alignof(float4) == 16);
static_assert(sizeof(double2) == 16 && alignof(double2) == 16);
static_assert(sizeof(short4) == 8 && alignof(short4) == 8);
static_assert(sizeof(uchar4) == 4 && alignof(uchar4) == 4);
static_assert(sizeof(__half2) == 4 && alignof(__half2) == 4);
static_assert(sizeof(__nv_bfloat162) == 4 && alignof(__nv_bfloat162) == 4);

template <typename Out, typename In, typename Function>
__global__ void map_kernel(Out* out, const In* in, int64_t n, Function function) {
    int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
    if (i < n) out[i] = function(in + i);
}

template <typename Out, typename In, typename Function>
int map(void* out, const void* in, int64_t n, Function function) {
    return launch(
        map_kernel<Out, In, Function>, static_cast<unsigned>((n + 255) / 256), 256, 0,
        static_cast<Out*>(out), static_cast<const In*>(in), n, function
    );
}

// ---- Conversions --------------------------------------------------------------------

EXPORT int float_to_half(void* out, const void* in, int64_t n) {
    return map<__half, float>(out, in, n, [](auto* x) { return __float2half_rn(*x); });
}
EXPORT int float_to_bf16(void* out, const void* in, int64_t n) {
    return map<__nv_bfloat16, float>(out, in, n, [](auto* x) {
        return __float2bfloat16_rn(*x);
    });
}
EXPORT int double_to_half(void* out, const void* in, int64_t n) {
    return map<__half, double>(out, in, n, [](auto* x) { return __double2half(*x); });
}
EXPORT int half_to_float(void* out, const void* in, int64_t n) {
    return map<float, __half>(out, in, n, [](auto* x) { return __half2float(*x); });
}
EXPORT int bf16_to_float(void* out, const void* in, int64_t n) {
    return map<float, __nv_bfloat16>(out, in, n, [](auto* x) {
        return __bfloat162float(*x);
    });
}

// ---- Arithmetic: three inputs at x[0], x[n] and x[2 n] ------------------------------

template <typename T>
int arithmetic(void* out, const void* in, int64_t n, int64_t operation) {
    return map<T, T>(out, in, n, [n, operation](const T* x) {
        const T a = x[0], b = x[n], c = x[2 * n];
        switch (operation) {
            case 0:
                return a + b;
            case 1:
                return a - b;
            case 2:
                return a * b;
            case 3:
                return a / b;
            default:
                return __hfma(a, b, c);
        }
    });
}

EXPORT int half_arithmetic(void* out, const void* in, int64_t n, int64_t operation) {
    return arithmetic<__half>(out, in, n, operation);
}
EXPORT int bf16_arithmetic(void* out, const void* in, int64_t n, int64_t operation) {
    return arithmetic<__nv_bfloat16>(out, in, n, operation);
}

// ---- Functions whose result the CUDA manual defines ---------------------------------

__global__ void intrinsics_kernel(unsigned* wrong) {
    unsigned number = 0;
    auto check = [&number, wrong](bool right) {
        if (!right) *wrong |= 1u << number;
        ++number;
    };
    check(__brev(0x00000001) == 0x80000000 && __brevll(2) == 1ull << 62);
    check(__clz(1) == 31 && __clz(0) == 32 && __clzll(1) == 63 && __clzll(0) == 64);
    check(__ffs(0) == 0 && __ffs(8) == 4 && __ffsll(1ll << 40) == 41);
    check(__popc(0xf0f0) == 8 && __popcll(~0ull) == 64);
    check(__byte_perm(0x33221100, 0x77665544, 0x7410) == 0x77441100);
    check(__byte_perm(0x00008000, 0, 0x9999) == 0xffffffff);
    check(__funnelshift_l(0x80000000, 1, 1) == 3);
    check(__funnelshift_r(0, 1, 1) == 0x80000000);
    check(__mulhi(-1, 2) == -1 && __umulhi(0xffffffff, 2) == 1);
    check(__umul64hi(~0ull, 2) == 1);
    check(ptx::multiply_wide(0xffffffff, 0xffffffff) == 0xfffffffe00000001);
    check(__dp4a(0x01ff0203, 0x01010101, 10) == 15);
    check(__float2int_rn(2.5f) == 2 && __float2int_rn(3.5f) == 4);
    check(__float2int_rz(-1.9f) == -1 && __float2int_rd(-1.1f) == -2);
    check(__float2int_rz(1e20f) == 0x7fffffff && __float2int_rz(NAN) == 0);
    check(__float2uint_rz(-5.0f) == 0 && __float2uint_rz(1e20f) == 0xffffffff);
    check(__float_as_uint(1.0f) == 0x3f800000 && __int_as_float(0x40000000) == 2.0f);
    check(__saturatef(NAN) == 0 && __saturatef(3) == 1 && __saturatef(-1) == 0);
    check(__fdividef(1.0f, 0x1p127f) == 0 && __fdividef(6, 3) == 2);
    check(rsqrtf(4.0f) == 0.5f && __frcp_rn(4.0f) == 0.25f);
    check(max(NAN, 1.0f) == 1.0f && min(1.0f, NAN) == 1.0f);
    check(max(-1, 1u) == 0xffffffff && min(3ll, 5ll) == 3);
    const __half half_nan(NAN);
    check(__hisnan(half_nan) && !(half_nan == half_nan) && half_nan != half_nan);
    check(__half_as_ushort(__hmax(__half(-0.0f), __half(0.0f))) == 0);
    check(__half_as_ushort(__hmin(half_nan, __half(2.0f))) == 0x4000);
    check(static_cast<int>(__half(-3.7f)) == -3 && __half2int_rn(__half(2.5f)) == 2);
    check(__half_as_ushort(__float2half_rz(70000.0f)) == 0x7bff);
    const __half2 pair = __floats2half2_rn(1.0f, 2.0f);
    check(__low2float(pair) == 1.0f && __half22float2(pair * pair).y == 4.0f);
    const int4 vector = make_int4(1, 2, 3, 4);
    check(__ldg(&vector).w == 4);
}

EXPORT int intrinsics(unsigned* wrong) {
    return launch(intrinsics_kernel, 1, 1, 0, wrong);
}

__global__ void functions_kernel(double* out, const double* in) {
    unsigned i = threadIdx.x;
    double x = in[i];
    double* row = out + 8 * i;
    row[0] = erfinv(x);
    row[1] = erfcinv(1 - x);
    row[2] = normcdf(x);
    row[3] = normcdfinv((1 + x) / 2);
    row[4] = erfcx(30 * x);
    row[5] = sinpi(2 * x);
    row[6] = cospi(2 * x);
    row[7] = erfinvf(static_cast<float>(x));
}
EXPORT int functions(double* out, const double* in, int64_t n) {
    return launch(functions_kernel, 1, static_cast<unsigned>(n), 0, out, in);
}

__global__ void more_intrinsics_kernel(int* wrong) {
    auto check = [&wrong](bool right, int line) {
        if (!right) *wrong++ = line;
    };
#define CHECK(condition) check(condition, __LINE__)
    CHECK(__funnelshift_lc(1, 2, 32) == 1 && __funnelshift_rc(1, 2, 40) == 2);
    CHECK(__mul24(-3, 5) == -15 && __mul24(0x7f000002, 3) == 6);
    CHECK(__umul24(0xff000002, 3) == 6);
    CHECK(__sad(-3, 4, 5) == 12 && __usad(1, 4, 5) == 8);
    CHECK(__hadd(-3, -2) == -3 && __rhadd(-3, -2) == -2);
    CHECK(__uhadd(0xffffffff, 0xffffffff) == 0xffffffff && __urhadd(1, 2) == 2);
    CHECK(__dp4a(0xff000002u, 0x01000003u, 1u) == 262);
    CHECK(__float2ull_rz(1e20f) == ~0ull && __double2ll_rn(2.5) == 2);
    CHECK(__double2uint_ru(1.1) == 2 && __float2ll_rd(-1.5f) == -2);
    CHECK(__hiloint2double(__double2hiint(-3.25), __double2loint(-3.25)) == -3.25);
    CHECK(umax(1, 0xffffffff) == 0xffffffff && llmin(-1, 1) == -1);
    CHECK(__half_as_ushort(__float2half_ru(1 + 0x1p-20f)) == 0x3c01);
    CHECK(__half_as_ushort(__float2half_rd(1 + 0x1p-20f)) == 0x3c00);
    CHECK(__half_as_ushort(__float2half_rd(-1 - 0x1p-20f)) == 0xbc01);
    CHECK(__half_as_ushort(__float2half_ru(1e30f)) == 0x7c00);
    CHECK(__half_as_ushort(__float2half_rd(1e30f)) == 0x7bff);
    CHECK(__half_as_ushort(__float2half_ru(1e-30f)) == 1);
    CHECK(__bfloat16_as_ushort(__float2bfloat16_ru(1 + 0x1p-20f)) == 0x3f81);
    CHECK(__bfloat16_as_ushort(__float2bfloat16_rd(1e-41f)) == 0);
    CHECK(__half2int_ru(__half(1.5f)) == 2 && __half2short_rn(__half(-2.5f)) == -2);
    const __half2 pair = __floats2half2_rn(0.5f, 3.0f);
    const __half2 saturated = __hadd2_sat(pair, pair);
    CHECK(__low2float(saturated) == 1 && __high2float(saturated) == 1);
    CHECK(__hbgt2(pair, __float2half2_rn(0.25f)) && !__hblt2(pair, saturated));
    CHECK(__high2float(h2floor(__floats2half2_rn(0, -1.5f))) == -2);
    const __half half = __half_raw{0x3c00};
    CHECK(half == __half(1.0f) && static_cast<__half_raw>(half).x == 0x3c00);
    float sine = 0, cosine = 0;
    sincospif(0.5f, &sine, &cosine);
    CHECK(sine == 1 && cosine == 0 && sinpi(3.0) == 0);
    CHECK(rcbrtf(8) == 0.5f && norm3df(2, 3, 6) == 7 && rhypotf(3, 4) == 0.2f);
    __builtin_assume(sine == 1);
#undef CHECK
}
EXPORT int more_intrinsics(int* wrong) {
    return launch(more_intrinsics_kernel, 1, 1, 0, wrong);
}

// Integers that are narrower than an int become one in a shuffle; atomics of other scopes.
__global__ void narrow_shuffle_kernel(int* out, const short* in, int* sum) {
    unsigned i = threadIdx.x;
    out[i] = __shfl_xor_sync(0xffffffff, in[i], 1);
    out[32 + i] = __shfl_sync(0xffffffff, i == 3, 3);
    out[64 + i] = __shfl_down_sync(0xffffffff, static_cast<unsigned char>(i), 1);
    atomicAdd_block(sum, 1);
    atomicAdd_system(sum, 1);
}
EXPORT int narrow_shuffle(int* out, const short* in, int* sum) {
    return launch(narrow_shuffle_kernel, 1, 32, 0, out, in, sum);
}

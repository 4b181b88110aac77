// float4, int2, uchar3, ... with CUDA's layout and alignment, and make_*.
#pragma once

#define TWIN_VECTOR_TYPES(name, element, alignment2, alignment4)                   \
    struct name##1 { element x; };                                                 \
    struct alignas(alignment2) name##2 { element x, y; };                          \
    struct name##3 { element x, y, z; };                                           \
    struct alignas(alignment4) name##4 { element x, y, z, w; };                    \
    constexpr name##1 make_##name##1(element x) { return {x}; }                    \
    constexpr name##2 make_##name##2(element x, element y) { return {x, y}; }      \
    constexpr name##3 make_##name##3(element x, element y, element z) {            \
        return {x, y, z};                                                          \
    }                                                                              \
    constexpr name##4 make_##name##4(element x, element y, element z, element w) { \
        return {x, y, z, w};                                                       \
    }

TWIN_VECTOR_TYPES(char, signed char, 2, 4)
TWIN_VECTOR_TYPES(uchar, unsigned char, 2, 4)
TWIN_VECTOR_TYPES(short, short, 4, 8)
TWIN_VECTOR_TYPES(ushort, unsigned short, 4, 8)
TWIN_VECTOR_TYPES(int, int, 8, 16)
TWIN_VECTOR_TYPES(uint, unsigned int, 8, 16)
TWIN_VECTOR_TYPES(long, long, 2 * sizeof(long), 16)
TWIN_VECTOR_TYPES(ulong, unsigned long, 2 * sizeof(unsigned long), 16)
TWIN_VECTOR_TYPES(longlong, long long, 16, 16)
TWIN_VECTOR_TYPES(ulonglong, unsigned long long, 16, 16)
TWIN_VECTOR_TYPES(float, float, 8, 16)
TWIN_VECTOR_TYPES(double, double, 16, 16)

#undef TWIN_VECTOR_TYPES

struct dim3 {
    unsigned int x, y, z;

    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1)
        : x(x), y(y), z(z) {}
    constexpr dim3(uint3 size) : x(size.x), y(size.y), z(size.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

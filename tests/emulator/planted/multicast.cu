// The faults of ../multicast.cuh, and the kernel without one, for two blocks and four. Each
// adds up 5 tiles.
#include "../multicast.cuh"

using multicast::Fault;

#define EXPORT_MULTICAST(name)                               \
    EXPORT int name##_2(float* out, float* x) {              \
        return multicast::run<2, Fault::name>(out, x, 5, 1); \
    }                                                        \
    EXPORT int name##_4(float* out, float* x) {              \
        return multicast::run<4, Fault::name>(out, x, 5, 1); \
    }

EXPORT_MULTICAST(none)
EXPORT_MULTICAST(more_bytes)
EXPORT_MULTICAST(own_bytes)
EXPORT_MULTICAST(no_arrival)
EXPORT_MULTICAST(own_arrivals)
EXPORT_MULTICAST(no_end)
EXPORT_MULTICAST(no_wait)

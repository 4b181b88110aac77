// A launch is a plan (which kernel instance, what grid, how much shared memory) and a
// launcher that carries it out, on the GPU and in the emulator alike.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

// Dynamic shared memory as `unsigned char name[]`. A macro: CUDA wants a declaration inside
// the kernel, the emulator a pointer. nvcc also pads the static shared memory of a file's
// other kernels to the alignment, which is therefore no larger than needed.
#ifdef TWIN_EMULATOR
#define DYNAMIC_SHARED(name, alignment) \
    unsigned char* const name = emulator::dynamic_shared()
#else
#define DYNAMIC_SHARED(name, alignment)    \
    extern __shared__ __align__(alignment) \
    unsigned char name[]
#endif

constexpr int WARP_SIZE = 32;

// What computes a call: what the op's table chooses, or a rung of its ladder.
enum class Rung : int { chosen, first, twin };

constexpr int FIRST_NUM_THREADS = 256;  // in a block of every first rung

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What a plan needs to know of the GPU it plans for.
struct Device {
    int arch;                  // 90 for sm_90
    int64_t max_shared_bytes;  // dynamic shared memory that one block may ask for
    int n_sms;                 // multiprocessors
};

// A device of an architecture that need not be present, with as many multiprocessors as an
// H200. Its shared memory is that of the CUDA C++ Programming Guide, table "Technical
// Specifications per Compute Capability".
inline Device device_of_arch(int arch) {
    const bool is_datacenter = arch == 80 || arch == 87 || (arch >= 90 && arch < 120);
    const int64_t kilobytes = !is_datacenter ? 99 : arch < 90 ? 163 : 227;
    return {arch, kilobytes * 1024, 132};
}

template <typename... Params>
struct Plan {
    void (*kernel)(Params...);
    dim3 grid;
    dim3 block;
    int64_t shared_bytes = 0;  // dynamic shared memory
    dim3 cluster{1, 1, 1};     // blocks that share their shared memory
    // Whether it begins while the launch before it ends, and its kernel waits for that one.
    bool is_dependent = false;
};

// A first rung has a block for each row, or for as many elements as the block has threads.
template <typename... Params>
Plan<Params...> plan_first(void (*kernel)(Params...), int64_t n_blocks) {
    return {kernel, dim3(n_blocks), dim3(FIRST_NUM_THREADS)};
}

// A plan that Python can read.
struct PlanDescription {
    // The host function that stands for the kernel, and bears the kernel's own symbol.
    const void* kernel;
    dim3 grid;
    dim3 block;
    int64_t shared_bytes;
    // Each is an address, an integer or the bits of a float. A structure is several numbers,
    // the first of which is its address.
    std::vector<std::vector<int64_t>> arguments;
};

// Carries plans out on a stream, or describes them, in order, for a GPU that may be absent.
class Launcher {
  public:
    // Launches on the current device.
    explicit Launcher(cudaStream_t stream) : stream_(stream) {
        error_ = query_current_device();
    }

    // Describes what would be launched on a device of this architecture.
    Launcher(int arch, std::vector<PlanDescription>* descriptions)
        : device_(device_of_arch(arch)), descriptions_(descriptions) {}

    const Device& device() const { return device_; }

    // Whether plans are only described: their tensors may have no memory.
    bool describes() const { return descriptions_ != nullptr; }

    // Addresses may come without a type, as the kernel knows the one that it takes.
    template <typename... Params, typename... Arguments>
    cudaError_t operator()(
        const Plan<Params...>& plan, const Arguments&... arguments
    ) const {
        static_assert(sizeof...(Params) == sizeof...(Arguments));
        return carry_out(plan, static_cast<Params>(arguments)...);
    }

  private:
    static constexpr int64_t SHARED_BYTES_WITHOUT_OPT_IN = 48 * 1024;

    template <typename... Params>
    cudaError_t carry_out(const Plan<Params...>& plan, Params... arguments) const {
        if (error_ != cudaSuccess) return error_;
        if (descriptions_) {
            descriptions_->push_back(
                {reinterpret_cast<const void*>(plan.kernel),
                 plan.grid,
                 plan.block,
                 plan.shared_bytes,
                 {numbers_of(arguments)...}}
            );
            return cudaSuccess;
        }
        cudaError_t error = cudaSuccess;
        if (plan.shared_bytes > SHARED_BYTES_WITHOUT_OPT_IN) {
            error = cudaFuncSetAttribute(
                plan.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                static_cast<int>(plan.shared_bytes)
            );
        }
        if (error == cudaSuccess) {
            cudaLaunchConfig_t config{};
            config.gridDim = plan.grid;
            config.blockDim = plan.block;
            config.dynamicSmemBytes = plan.shared_bytes;
            config.stream = stream_;
            cudaLaunchAttribute attributes[2]{};
            config.attrs = attributes;
            if (plan.cluster.x * plan.cluster.y * plan.cluster.z > 1) {
                cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
                cluster.id = cudaLaunchAttributeClusterDimension;
                cluster.val.clusterDim = {
                    plan.cluster.x, plan.cluster.y, plan.cluster.z
                };
            }
            if (plan.is_dependent && device_.arch >= 90) {
                cudaLaunchAttribute& dependent = attributes[config.numAttrs++];
                dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
                dependent.val.programmaticStreamSerializationAllowed = 1;
            }
            error = cudaLaunchKernelEx(&config, plan.kernel, arguments...);
        }
        // A refused launch is reported once: left behind, it would surface elsewhere.
        if (error != cudaSuccess) cudaGetLastError();
        return error;
    }

    cudaError_t query_current_device() {
        int index = 0, major = 0, minor = 0, shared_bytes = 0, n_sms = 0;
        if (const cudaError_t error = cudaGetDevice(&index)) return error;
        for (const auto& [value, attribute] :
             {std::pair{&major, cudaDevAttrComputeCapabilityMajor},
              std::pair{&minor, cudaDevAttrComputeCapabilityMinor},
              std::pair{&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin},
              std::pair{&n_sms, cudaDevAttrMultiProcessorCount}}) {
            if (const cudaError_t error =
                    cudaDeviceGetAttribute(value, attribute, index))
                return error;
        }
        device_ = {10 * major + minor, shared_bytes, n_sms};
        return cudaSuccess;
    }

    // Structures have a function describe_argument of their own, next to them.
    template <typename T>
    static std::vector<int64_t> numbers_of(const T& value) {
        if constexpr (std::is_pointer_v<T>) {
            return {reinterpret_cast<intptr_t>(value)};
        } else if constexpr (std::is_same_v<T, float>) {
            return {std::bit_cast<uint32_t>(value)};
        } else if constexpr (std::is_integral_v<T>) {
            return {static_cast<int64_t>(value)};
        } else {
            return describe_argument(value);
        }
    }

    Device device_{};
    cudaError_t error_ = cudaSuccess;
    cudaStream_t stream_ = nullptr;
    std::vector<PlanDescription>* descriptions_ = nullptr;
};

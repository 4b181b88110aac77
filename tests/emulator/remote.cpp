// Runs the test kernels in a process of their own, for tests of an emulator that was
// compiled for another processor. Every request on the standard input calls one
// exported function by name; the answer on the standard output is its result, and the
// arrays that it was given. emulated.py is the other end.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

void read_bytes(void* target, std::size_t bytes) {
    // The end of the requests comes between two of them.
    if (std::fread(target, 1, bytes, stdin) != bytes) std::exit(0);
}

std::uint32_t read_number() {
    std::uint32_t number = 0;
    read_bytes(&number, sizeof(number));
    return number;
}

std::string read_string() {
    std::string result(read_number(), '\0');
    read_bytes(result.data(), result.size());
    return result;
}

void write_string(const std::string& value) {
    const auto bytes = static_cast<std::uint32_t>(value.size());
    std::fwrite(&bytes, sizeof(bytes), 1, stdout);
    std::fwrite(value.data(), 1, bytes, stdout);
}

struct Free {
    void operator()(void* pointer) const { std::free(pointer); }
};

struct Array {
    std::unique_ptr<char, Free> data;
    std::size_t bytes;
};

// Arrays are passed as pointers and everything else as int64_t, so one type of function
// will do for up to MAX_ARGUMENTS of them.
constexpr std::size_t MAX_ARGUMENTS = 16;

// A function that takes fewer does not look at the rest.
template <std::size_t... INDICES>
int call(
    void* function, const int64_t (&arguments)[MAX_ARGUMENTS],
    std::index_sequence<INDICES...>
) {
    using Function = int (*)(decltype(arguments[INDICES] + 0)...);
    return reinterpret_cast<Function>(function)(arguments[INDICES]...);
}

void serve_one_request() {
    for (std::uint32_t n = read_number(); n > 0; --n) unsetenv(read_string().c_str());
    for (std::uint32_t n = read_number(); n > 0; --n) {
        const std::string name = read_string();
        setenv(name.c_str(), read_string().c_str(), 1);
    }
    const std::string name = read_string();
    std::vector<Array> arrays;
    int64_t arguments[MAX_ARGUMENTS] = {};
    const std::uint32_t count = read_number();
    if (count > MAX_ARGUMENTS) {
        std::fprintf(
            stderr, "%s: more than %zu arguments\n", name.c_str(), MAX_ARGUMENTS
        );
        std::exit(1);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        if (read_number() == 0) {
            read_bytes(&arguments[i], sizeof(arguments[i]));
            continue;
        }
        constexpr std::size_t ALIGNMENT = 64;
        const std::size_t bytes = read_number();
        const std::size_t rounded = bytes / ALIGNMENT * ALIGNMENT + ALIGNMENT;
        auto* data = static_cast<char*>(std::aligned_alloc(ALIGNMENT, rounded));
        read_bytes(data, bytes);
        arguments[i] = reinterpret_cast<int64_t>(data);
        arrays.push_back({std::unique_ptr<char, Free>(data), bytes});
    }

    void* const function = dlsym(RTLD_DEFAULT, name.c_str());
    const auto message =
        reinterpret_cast<const char* (*)(int)>(dlsym(RTLD_DEFAULT, "last_message"));
    const int32_t error =
        call(function, arguments, std::make_index_sequence<MAX_ARGUMENTS>());
    std::fwrite(&error, sizeof(error), 1, stdout);
    write_string(message(error));
    for (const Array& array : arrays) {
        std::fwrite(array.data.get(), 1, array.bytes, stdout);
    }
    std::fflush(stdout);
}

}  // namespace

int main() {
    for (;;) serve_one_request();
}

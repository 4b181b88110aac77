// The program or shared library that contains the kernels: its memory, its __shared__
// variables, and the source lines of its code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

/// A thread_local variable, which is what __shared__ means in the emulator.
struct SharedVariable {
    std::string name;
    std::size_t offset;  // in the module's block of thread-local storage
    std::size_t bytes;
    bool is_guard;  // the compiler's flag of whether another one is initialised
};

class Module {
  public:
    /// The module that this function is linked into.
    static const Module& own();

    bool may_read(std::uintptr_t address) const { return lies_in(readable_, address); }
    bool may_write(std::uintptr_t address) const { return lies_in(writable_, address); }

    /// The address of the module's thread-local storage in the calling thread.
    std::uintptr_t thread_local_base() const;
    std::size_t thread_local_bytes() const { return thread_local_bytes_; }

    /// The kernels' own variables, without the emulator's, by offset.
    const std::vector<SharedVariable>& shared_variables() const { return variables_; }

    /// "softmax.cu:14", or "reduce.cuh:40 (from softmax.cu:93)" in an inlined function.
    /// Lines of the emulator are left out.
    std::string source_line(std::uintptr_t code_address) const;

    std::uintptr_t load_address() const { return load_address_; }

  private:
    struct Range {
        std::uintptr_t begin;
        std::uintptr_t end;
    };

    Module();
    static bool lies_in(const std::vector<Range>& ranges, std::uintptr_t address);
    void read_symbols();

    std::string path_;
    std::uintptr_t load_address_ = 0;
    std::size_t thread_local_bytes_ = 0;
    std::vector<Range> readable_;
    std::vector<Range> writable_;
    std::vector<SharedVariable> variables_;
};

}  // namespace checking
}  // namespace emulator

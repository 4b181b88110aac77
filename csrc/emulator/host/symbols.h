// Device variables by name. Here they are the process's own variables, and a symbol is
// a reference to one.
#pragma once

#include "memory.h"

namespace emulator {

/// Refuses a copy that is larger than the rest of the variable.
cudaError_t copy_symbol(
    void* target, const void* source, std::size_t bytes, std::size_t offset,
    std::size_t size
);

template <typename T>
char* bytes_of_symbol(const T& symbol) {
    return const_cast<char*>(reinterpret_cast<const volatile char*>(&symbol));
}

}  // namespace emulator

template <typename T>
cudaError_t cudaMemcpyToSymbol(
    const T& symbol, const void* source, std::size_t bytes, std::size_t offset = 0,
    cudaMemcpyKind = cudaMemcpyHostToDevice
) {
    char* target = emulator::bytes_of_symbol(symbol) + offset;
    return emulator::copy_symbol(target, source, bytes, offset, sizeof(T));
}

template <typename T>
cudaError_t cudaMemcpyToSymbolAsync(
    const T& symbol, const void* source, std::size_t bytes, std::size_t offset = 0,
    cudaMemcpyKind kind = cudaMemcpyHostToDevice, cudaStream_t = nullptr
) {
    return cudaMemcpyToSymbol(symbol, source, bytes, offset, kind);
}

template <typename T>
cudaError_t cudaMemcpyFromSymbol(
    void* target, const T& symbol, std::size_t bytes, std::size_t offset = 0,
    cudaMemcpyKind = cudaMemcpyDeviceToHost
) {
    const char* source = emulator::bytes_of_symbol(symbol) + offset;
    return emulator::copy_symbol(target, source, bytes, offset, sizeof(T));
}

template <typename T>
cudaError_t cudaMemcpyFromSymbolAsync(
    void* target, const T& symbol, std::size_t bytes, std::size_t offset = 0,
    cudaMemcpyKind kind = cudaMemcpyDeviceToHost, cudaStream_t = nullptr
) {
    return cudaMemcpyFromSymbol(target, symbol, bytes, offset, kind);
}

template <typename T>
cudaError_t cudaGetSymbolAddress(void** pointer, const T& symbol) {
    *pointer = emulator::bytes_of_symbol(symbol);
    return cudaSuccess;
}
template <typename Pointer, typename T>
cudaError_t cudaGetSymbolAddress(Pointer** pointer, const T& symbol) {
    return cudaGetSymbolAddress(reinterpret_cast<void**>(pointer), symbol);
}

template <typename T>
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const T&) {
    *bytes = sizeof(T);
    return cudaSuccess;
}

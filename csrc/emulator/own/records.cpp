// The launches of a call, the memory that they may access, and the first fault.

#include "records.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "../emulator_checker.h"
#include "../runtime/allocations.h"
#include "launch.h"

namespace own {
namespace {

struct Region {
    std::size_t bytes;
    std::string name;
    emulator_use use;
};

std::mutex mutex;                            // guards what follows
std::map<std::uintptr_t, Region> given;      // by the caller, for one call
std::map<std::uintptr_t, Region> allocated;  // by the host function; still there
std::vector<std::string> records;            // of this call, as JSON
std::string fault;                           // the first; empty if there is none
std::string refusal;                         // of the last call

Region* find(std::map<std::uintptr_t, Region>& regions, std::uintptr_t address) {
    auto next = regions.upper_bound(address);
    if (next == regions.begin()) return nullptr;
    auto& [begin, region] = *--next;
    // An address at the end belongs to it too: of an empty slice, or one beyond.
    return address <= begin + region.bytes ? &region : nullptr;
}

struct Memory {
    std::uintptr_t begin;
    std::size_t bytes;
};

/// The memory that an address leads into, if it is known.
std::optional<Memory> memory_at(std::uintptr_t address) {
    for (auto* regions : {&given, &allocated}) {
        if (const Region* region = find(*regions, address)) {
            return Memory{
                std::prev(regions->upper_bound(address))->first, region->bytes
            };
        }
    }
    if (const auto place =
            emulator::find_allocation(reinterpret_cast<const void*>(address))) {
        return Memory{address - place->offset, place->allocation.bytes};
    }
    return std::nullopt;
}

std::vector<std::string> split(const std::string& names) {
    std::vector<std::string> result;
    std::stringstream stream(names);
    for (std::string name; std::getline(stream, name, ',');) result.push_back(name);
    return result;
}

/// The pointer at a place of an argument, which may be a structure that holds some.
std::uintptr_t pointer_at(const Argument& argument, std::size_t place) {
    std::uintptr_t address = 0;
    const char* const bytes = static_cast<const char*>(argument.bytes);
    std::memcpy(&address, bytes + place, sizeof(address));
    return address;
}

/// Writes the pointers of an argument that lead into known memory: the place in the
/// argument, and the address and size of the memory.
void write_pointers(std::ostream& out, const Argument& argument) {
    const char* separator = "";
    for (std::size_t place = 0; place + sizeof(void*) <= argument.size;
         place += sizeof(void*)) {
        const std::uintptr_t address = pointer_at(argument, place);
        if (const auto memory = memory_at(address)) {
            out << separator << '[' << place << ", " << memory->begin << ", "
                << memory->bytes << ']';
            separator = ", ";
        }
    }
}

void write_argument(
    std::ostream& out, const Argument& argument, const std::string& name
) {
    out << "{\"name\": \"" << name << "\", \"bytes\": \"";
    constexpr char DIGITS[] = "0123456789abcdef";
    const auto* const bytes = static_cast<const unsigned char*>(argument.bytes);
    for (std::size_t i = 0; i < argument.size; ++i) {
        out << DIGITS[bytes[i] >> 4] << DIGITS[bytes[i] & 15];
    }
    out << "\", \"pointers\": [";
    if (argument.is_pointer || argument.size > sizeof(void*)) {
        write_pointers(out, argument);
    }
    out << "]}";
}

std::string as_json(const Record& record, const std::vector<std::string>& names) {
    std::ostringstream out;
    Dl_info info{};
    dladdr(record.kernel, &info);
    out << "{\"kernel\": \"" << (info.dli_sname ? info.dli_sname : "")
        << "\", \"grid\": [" << record.grid.x << ", " << record.grid.y << ", "
        << record.grid.z << "], \"block\": [" << record.block.x << ", "
        << record.block.y << ", " << record.block.z
        << "], \"shared_bytes\": " << record.shared_bytes << ", \"arguments\": [";
    for (std::size_t i = 0; i < record.argument_count; ++i) {
        if (i > 0) out << ", ";
        write_argument(out, record.arguments[i], i < names.size() ? names[i] : "");
    }
    out << "]}";
    return out.str();
}

/// Gives memory of the host function the names by which the kernel knows it.
void name_allocations(const Record& record, const std::vector<std::string>& names) {
    for (auto& [begin, region] : allocated) region.name = "memory of the host function";
    for (std::size_t i = 0; i < record.argument_count && i < names.size(); ++i) {
        if (!record.arguments[i].is_pointer) continue;
        const std::uintptr_t address = pointer_at(record.arguments[i], 0);
        if (Region* region = find(allocated, address)) region->name = names[i];
    }
}

void register_memory() {
    emulator_clear_tensors();
    for (const auto* regions : {&given, &allocated}) {
        for (const auto& [begin, region] : *regions) {
            emulator_register_tensor(
                region.name.c_str(), reinterpret_cast<const void*>(begin), region.bytes,
                region.use
            );
        }
    }
}

}  // namespace

bool begin_launch(const Record& record) {
    const std::lock_guard lock(mutex);
    if (!fault.empty()) return false;
    const std::vector<std::string> names = split(record.names);
    records.push_back(as_json(record, names));
    name_allocations(record, names);
    register_memory();
    return true;
}

void end_launch(cudaError_t error) {
    if (error != cudaSuccess) report_fault(cudaGetErrorString(error));
}

void report_fault(const char* message) {
    const std::lock_guard lock(mutex);
    if (fault.empty()) fault = message;
}

void note_refusal(const char* message) { refusal = message; }

void note_allocation(const void* address, std::size_t bytes) {
    const std::lock_guard lock(mutex);
    allocated[reinterpret_cast<std::uintptr_t>(address)] = {
        bytes, "", EMULATOR_WORKSPACE
    };
}

void note_release(const void* address) {
    const std::lock_guard lock(mutex);
    allocated.erase(reinterpret_cast<std::uintptr_t>(address));
}

}  // namespace own

void own_begin_call(void) {
    const std::lock_guard lock(own::mutex);
    own::given.clear();
    own::records.clear();
    own::fault.clear();
}

void own_give(const char* name, const void* address, size_t bytes, int is_written) {
    const std::lock_guard lock(own::mutex);
    own::given[reinterpret_cast<std::uintptr_t>(address)] = {
        bytes, name, is_written ? EMULATOR_WORKSPACE : EMULATOR_INPUT
    };
}

const char* own_fault(void) { return own::fault.c_str(); }

const char* own_refusal(void) { return own::refusal.c_str(); }

size_t own_launch_count(void) { return own::records.size(); }

const char* own_launch(size_t number) { return own::records[number].c_str(); }

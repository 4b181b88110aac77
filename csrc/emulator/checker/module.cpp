#include "module.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "../device/language.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

namespace {

/// Calls visit(info) for the module that contains an address.
template <typename Visit>
void visit_module_of(const void* address, Visit visit) {
    struct Search {
        std::uintptr_t address;
        Visit& visit;
    };
    Search search{reinterpret_cast<std::uintptr_t>(address), visit};
    auto look = [](dl_phdr_info* info, std::size_t, void* argument) {
        auto& wanted = *static_cast<Search*>(argument);
        for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
            const ElfW(Phdr) & segment = info->dlpi_phdr[i];
            std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
            if (segment.p_type == PT_LOAD && wanted.address >= begin &&
                wanted.address < begin + segment.p_memsz) {
                wanted.visit(*info);
                return 1;
            }
        }
        return 0;
    };
    dl_iterate_phdr(look, &search);
}

const void* own_address() { return reinterpret_cast<const void*>(&Module::own); }

std::string demangled(const char* symbol) {
    int status = 0;
    char* text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    std::string result = text != nullptr ? text : symbol;
    std::free(text);
    return result;
}

/// "results" of "warp_results()::results".
std::string last_component(const std::string& name) {
    std::size_t colons = name.rfind("::");
    return colons == std::string::npos ? name : name.substr(colons + 2);
}

/// The standard output of a command; "" if it cannot be started.
std::string output_of(const std::vector<std::string>& command) {
    int ends[2];
    if (pipe(ends) != 0) return "";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    std::vector<char*> arguments;
    for (const std::string& argument : command) {
        arguments.push_back(const_cast<char*>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    pid_t process = 0;
    bool started =
        posix_spawnp(
            &process, arguments[0], &actions, nullptr, arguments.data(), environ
        ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    std::string output;
    char buffer[1024];
    for (ssize_t count = 0;
         started && (count = read(ends[0], buffer, sizeof(buffer))) > 0;) {
        output.append(buffer, static_cast<std::size_t>(count));
    }
    close(ends[0]);
    if (started) waitpid(process, nullptr, 0);
    return output;
}

/// The folder of the emulator's headers, spelled as the debug information spells it.
std::string_view emulator_folder() {
    constexpr std::string_view OWN_FILE = __FILE__;
    constexpr std::string_view OWN_NAME = "checker/module.cpp";
    static_assert(OWN_FILE.ends_with(OWN_NAME));
    return OWN_FILE.substr(0, OWN_FILE.size() - OWN_NAME.size());
}

}  // namespace

const Module& Module::own() {
    static const Module module;
    return module;
}

Module::Module() {
    visit_module_of(own_address(), [this](const dl_phdr_info& info) {
        // The dynamic linker has no name for the program itself.
        bool is_program = info.dlpi_name[0] == '\0';
        path_ = is_program ? std::filesystem::read_symlink("/proc/self/exe").string()
                           : info.dlpi_name;
        load_address_ = info.dlpi_addr;
        for (unsigned i = 0; i < info.dlpi_phnum; ++i) {
            const ElfW(Phdr) & segment = info.dlpi_phdr[i];
            std::uintptr_t begin = info.dlpi_addr + segment.p_vaddr;
            Range range{begin, begin + segment.p_memsz};
            if (segment.p_type == PT_TLS) thread_local_bytes_ = segment.p_memsz;
            if (segment.p_type != PT_LOAD) continue;
            readable_.push_back(range);
            if ((segment.p_flags & PF_W) != 0) writable_.push_back(range);
        }
    });
    read_symbols();
}

bool Module::lies_in(const std::vector<Range>& ranges, std::uintptr_t address) {
    return std::any_of(ranges.begin(), ranges.end(), [address](const Range& range) {
        return address >= range.begin && address < range.end;
    });
}

std::uintptr_t Module::thread_local_base() const {
    // The dynamic linker allocates thread-local storage when a thread first touches it.
    blockDim = dim3(blockDim);
    std::uintptr_t base = 0;
    visit_module_of(own_address(), [&base](const dl_phdr_info& info) {
        base = reinterpret_cast<std::uintptr_t>(info.dlpi_tls_data);
    });
    return base;
}

void Module::read_symbols() {
    std::ifstream file(path_, std::ios::binary);
    std::string image(std::istreambuf_iterator<char>(file), {});
    ElfW(Ehdr) header{};
    if (image.size() < sizeof(header)) return;
    std::memcpy(&header, image.data(), sizeof(header));
    std::vector<ElfW(Shdr)> sections(header.e_shnum);
    std::memcpy(
        sections.data(), image.data() + header.e_shoff,
        header.e_shnum * sizeof(ElfW(Shdr))
    );
    for (const ElfW(Shdr) & section : sections) {
        if (section.sh_type != SHT_SYMTAB) continue;
        const char* names = image.data() + sections[section.sh_link].sh_offset;
        for (std::size_t offset = 0; offset < section.sh_size;
             offset += sizeof(ElfW(Sym))) {
            ElfW(Sym) symbol;
            std::memcpy(
                &symbol, image.data() + section.sh_offset + offset, sizeof(symbol)
            );
            if ((symbol.st_info & 0xf) != STT_TLS || symbol.st_size == 0) continue;
            std::string name = demangled(names + symbol.st_name);
            if (name.starts_with("emulator::") || name == "blockDim" ||
                name == "gridDim") {
                continue;
            }
            bool is_guard = name.starts_with("guard variable for ");
            variables_.push_back(
                {last_component(name), symbol.st_value, symbol.st_size, is_guard}
            );
        }
    }
    std::sort(variables_.begin(), variables_.end(), [](const auto& a, const auto& b) {
        return a.offset < b.offset;
    });
}

std::string Module::source_line(std::uintptr_t code_address) const {
    char offset[32];
    std::snprintf(
        offset, sizeof(offset), "0x%zx", std::size_t{code_address - load_address_}
    );
    // One line for the instruction, and one for each function that it is inlined into.
    std::string lines = output_of({"addr2line", "-i", "-e", path_, offset});
    std::vector<std::string> places;
    for (std::size_t begin = 0; begin < lines.size();) {
        std::size_t end = std::min(lines.find('\n', begin), lines.size());
        std::string line = lines.substr(begin, end - begin);
        begin = end + 1;
        line.resize(std::min(line.find(" (discriminator"), line.size()));
        bool is_known = !line.starts_with("??") && !line.ends_with(":?");
        if (!is_known || line.starts_with(emulator_folder())) continue;
        if (places.empty() || places.back() != line) places.push_back(line);
    }
    if (places.empty()) return std::string(offset) + " of " + path_;
    if (places.size() == 1) return places.front();
    return places.front() + " (from " + places.back() + ")";
}

}  // namespace checking
}  // namespace emulator

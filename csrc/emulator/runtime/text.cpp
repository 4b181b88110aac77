// Text of messages. The dynamic linker knows the name of a kernel only if its symbol is
// visible.

#include "text.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace emulator {

std::string text(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    va_list same_arguments;
    va_copy(same_arguments, arguments);
    int length = std::vsnprintf(nullptr, 0, format, arguments);
    std::string result(static_cast<std::size_t>(length), '\0');
    std::vsnprintf(result.data(), result.size() + 1, format, same_arguments);
    va_end(same_arguments);
    va_end(arguments);
    return result;
}

std::string index_text(uint3 index) {
    return text("(%u, %u, %u)", index.x, index.y, index.z);
}

std::string site_text(Site site) { return text("%s:%d", site.file, site.line); }

std::string kernel_name(const void* kernel) {
    Dl_info info{};
    if (dladdr(kernel, &info) == 0) return text("kernel at %p", kernel);
    if (info.dli_sname == nullptr || info.dli_saddr != kernel) {
        auto offset =
            static_cast<const char*>(kernel) - static_cast<char*>(info.dli_fbase);
        return text("kernel at %s+0x%tx", info.dli_fname, offset);
    }
    int status = 0;
    char* demangled = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
    if (demangled == nullptr) return info.dli_sname;
    std::string name = demangled;
    std::free(demangled);

    if (name.ends_with(')')) {
        std::size_t opening = name.size();
        int depth = 0;
        do {
            --opening;
            if (name[opening] == ')') ++depth;
            if (name[opening] == '(') --depth;
        } while (depth > 0 && opening > 0);
        name.resize(opening);
    }
    constexpr std::string_view RETURN_TYPE = "void ";
    if (name.starts_with(RETURN_TYPE)) name.erase(0, RETURN_TYPE.size());
    return name;
}

}  // namespace emulator

#include "location.h"

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "module.h"

namespace emulator {
namespace [[gnu::visibility("hidden")]] checking {

namespace {

// Tells the number of a Site from an offset.
constexpr Location SITE_BIT = 1u << 31;

/// Numbers the sites that the runtime names.
class Sites {
  public:
    Location number_of(Site site) {
        std::lock_guard lock(mutex_);
        auto [entry, is_new] =
            numbers_.try_emplace({site.file, site.line}, sites_.size());
        if (is_new) sites_.push_back(site);
        return SITE_BIT | static_cast<Location>(entry->second);
    }
    Site site_of(Location location) {
        std::lock_guard lock(mutex_);
        return sites_[location & ~SITE_BIT];
    }

  private:
    std::mutex mutex_;
    std::map<std::pair<const char*, int>, std::size_t> numbers_;
    std::vector<Site> sites_;
};

Sites sites;

}  // namespace

Location location_of(const void* return_address) {
    // The return address is that of the next instruction, which may be of another line.
    std::uintptr_t call = reinterpret_cast<std::uintptr_t>(return_address) - 1;
    return static_cast<Location>(call - Module::own().load_address());
}

Location location_of(Site site) { return sites.number_of(site); }

std::string source_line(Location location) {
    if ((location & SITE_BIT) == 0) {
        return Module::own().source_line(Module::own().load_address() + location);
    }
    Site site = sites.site_of(location);
    return std::string(site.file) + ":" + std::to_string(site.line);
}

}  // namespace checking
}  // namespace emulator
